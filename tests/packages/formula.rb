# Runs the Homebrew formula without Homebrew: its archive for this machine, its checksum, its `install` and its `test`.
#
#   ruby tests/packages/formula.rb RELEASE-FOLDER PREFIX

require "digest"
require "fileutils"
require "pathname"

# A folder of the prefix that files are installed into.
class Target < Pathname
  def install(*what)
    mkpath
    what.flatten.each do |one|
      pairs = one.is_a?(Hash) ? one : { one => File.basename(one) }
      pairs.each { |from, name| FileUtils.cp(from, self / name) }
    end
  end
end

# As much of Homebrew as a formula of ours uses. What it does not know fails.
class Formula
  PREFIX = Pathname(ARGV.fetch(1))
  FOLDERS = {
    bin: "bin", opt_bin: "bin", etc: "etc", man1: "share/man/man1", bash_completion: "etc/bash_completion.d",
    zsh_completion: "share/zsh/site-functions", fish_completion: "share/fish/vendor_completions.d"
  }.freeze

  class << self
    attr_reader :facts, :test_block, :service_block

    %i[desc homepage version license url sha256].each do |name|
      define_method(name) { |value| (@facts ||= {})[name] = value }
    end

    def on_linux = RUBY_PLATFORM.include?("linux") && yield
    def on_macos = RUBY_PLATFORM.include?("darwin") && yield
    def on_intel = RUBY_PLATFORM.start_with?("x86_64") && yield
    def on_arm = RUBY_PLATFORM.match?(/\A(aarch64|arm64)/) && yield
    def test(&block) = @test_block = block
    def service(&block) = @service_block = block
  end

  FOLDERS.each { |name, folder| define_method(name) { Target.new(PREFIX / folder) } }

  def version = self.class.facts.fetch(:version)
  def run(command) = @service = command.map(&:to_s)
  def keep_alive(**) = nil

  def shell_output(command)
    output = IO.popen(command, &:read)
    abort "formula: `#{command}` failed" unless $?.success?
    output
  end

  def assert_match(expected, actual)
    abort "formula: `#{expected}` is not in\n#{actual}" unless actual.include?(expected)
  end

  def check
    install
    instance_eval(&self.class.test_block)
    instance_eval(&self.class.service_block)
    program = @service.first
    abort "formula: the service starts #{program}, which is not installed" unless File.executable?(program)
  end
end

release = Pathname(ARGV.fetch(0)).realpath
load release / "countersign.rb"
facts = Countersign.facts
archive = release / File.basename(facts.fetch(:url))
abort "formula: wrong checksum" unless Digest::SHA256.file(archive).hexdigest == facts.fetch(:sha256)
Formula::PREFIX.mkpath
source = Formula::PREFIX / "source"
source.mkpath
abort "formula: tar failed" unless system("tar", "-C", source.to_s, "--strip-components=1", "-xzf", archive.to_s)
Dir.chdir(source) { Countersign.new.check }
