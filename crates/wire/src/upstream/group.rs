//! A process group of a child's own, for children that speak no protocol: nothing of it outlives this value, nor this process.
//! It starts nothing and reads nothing.

use rustix::process::Signal;
use tokio::process::{Child, Command};

use super::orphan::{kill_group, unwatch, watch};

/// The group a child leads. Dropping it kills every process that is still in it.
#[derive(Debug)]
pub struct Group {
    id: i32,
}

impl Group {
    /// Starts a command as the leader of a group of its own, under the keeper's eye at once.
    pub fn start(command: &mut Command) -> std::io::Result<(Child, Self)> {
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| std::io::Error::other("it ended at once"))?;
        watch(id);
        Ok((child, Self { id }))
    }

    /// Asks everyone in the group to leave.
    pub fn ask_to_leave(&self) {
        kill_group(self.id, Signal::TERM);
    }

    /// Kills everyone in the group.
    pub fn kill(&self) {
        kill_group(self.id, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        unwatch(self.id);
    }
}
