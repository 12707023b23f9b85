//! A process group for children that do not speak MCP: no process of it outlives this value or this program.

use rustix::process::Signal;
use tokio::process::{Child, Command};

use super::orphan_keeper::{kill_group, register, unregister};

/// The group a child leads. Dropping it kills every process that is still in it.
#[derive(Debug)]
pub struct ProcessGroup {
    id: i32,
}

impl ProcessGroup {
    /// Starts a command as the leader of a group of its own, registered with the orphan keeper.
    pub fn start(command: &mut Command) -> std::io::Result<(Child, Self)> {
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| std::io::Error::other("it ended at once"))?;
        // After the spawn: a group number is known only then. In the moment between, `kill_on_drop` covers the child.
        register(id);
        Ok((child, Self { id }))
    }

    /// Sends SIGTERM to the group.
    pub fn ask_to_leave(&self) {
        kill_group(self.id, Signal::TERM);
    }

    /// Sends SIGKILL to the group.
    pub fn kill(&self) {
        kill_group(self.id, Signal::KILL);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
        unregister(self.id);
    }
}
