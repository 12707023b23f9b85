class Countersign < Formula
  RELEASES = "https://github.com/countersign/countersign/releases/download/vVERSION".freeze

  desc "MCP gateway with human approval: agents draft, a person countersigns"
  homepage "https://github.com/countersign/countersign"
  version "VERSION"
  license "Apache-2.0"

  # ARCHIVES

  def install
    bin.install "bin/countersign"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/countersign.bash" => "countersign"
    zsh_completion.install "completions/countersign.zsh" => "_countersign"
    fish_completion.install "completions/countersign.fish"
  end

  service do
    run [opt_bin/"countersign", "serve", "--http", "--config", etc/"countersign/countersign.toml"]
    keep_alive crashed: true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/countersign version")
    assert_match "SO-1043 is still there", shell_output("#{bin}/countersign demo --hands-off")
  end
end
