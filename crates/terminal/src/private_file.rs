//! Files and folders that are this account's alone from the moment they exist, whatever the umask says.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Makes a new file that nobody else can open. Fails where there is one, or a link.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(path)
}

/// Writes a new file that nobody else can open.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes a folder and those above it that are missing; nobody else can look into what is made.
pub fn make_folder(path: &Path) -> io::Result<()> {
    let mut make = fs::DirBuilder::new();
    make.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        make.mode(0o700);
    }
    make.create(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn attack_16_files_are_private_from_the_first_moment_and_never_follow_a_link() {
        let room = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        let (folder, file) = (room.path().join("a/b"), room.path().join("a/b/file"));
        make_folder(&folder).unwrap();
        assert_eq!((mode(&folder), mode(&room.path().join("a"))), (0o700, 0o700));
        // Still empty, and closed to others already.
        let made = create(&file).unwrap();
        assert_eq!((mode(&file), made.metadata().unwrap().len()), (0o600, 0));
        let link = folder.join("link");
        std::os::unix::fs::symlink(folder.join("elsewhere"), &link).unwrap();
        assert_eq!(create(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!folder.join("elsewhere").exists());
    }
}
