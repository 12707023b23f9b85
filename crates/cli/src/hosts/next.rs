//! What a person has to do in a host after its file was changed: none of them does everything by itself. Says it; does nothing.

use super::{Host, Scope};

/// What to do next in a host, in one line.
pub(crate) fn next_step(host: Host, scope: Scope) -> &'static str {
    match (host, scope) {
        (Host::ClaudeCode, Scope::User) => "restart it; /mcp lists `countersign`",
        (Host::ClaudeCode, Scope::Project) => {
            "start it in this folder and accept `countersign` when it asks, or in /mcp: until then it is pending"
        }
        (Host::ClaudeDesktop, _) => "quit it and start it again; it reads the file only then",
        (Host::Codex, Scope::User) => "start a new session; /mcp lists `countersign`",
        (Host::Codex, Scope::Project) => {
            "start it in this folder and trust the folder: until then the file is not read"
        }
        (Host::Cursor, _) => "switch `countersign` on in its settings, under MCP",
        (Host::VsCode, Scope::User) => "run `MCP: List Servers`, start `countersign` and trust it",
        (Host::VsCode, Scope::Project) => {
            "open this folder, run `MCP: List Servers`, start `countersign` and trust it"
        }
        (Host::Copilot, Scope::User) => "restart it; /mcp show lists `countersign`",
        (Host::Copilot, Scope::Project) => {
            "start it in this folder and trust the folder: until then the file is not read"
        }
        // In a folder it does not trust it starts no server at all, whoever named it.
        (Host::Gemini, Scope::User) => "restart it in a folder it trusts; /mcp lists `countersign`",
        (Host::Gemini, Scope::Project) => {
            "start it in this folder and trust the folder: until then no server is started"
        }
        (Host::Antigravity, _) => "open Manage MCP Servers and press Refresh",
        (Host::Windsurf, _) => "press the refresh button of its MCP servers",
        (Host::Devin, _) => "start a new session; `devin mcp list` lists `countersign`",
        (Host::Zed, _) => "nothing: it reads the file at once; the agent panel's settings list `countersign`",
    }
}
