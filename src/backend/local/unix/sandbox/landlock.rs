//! The rights that Landlock knows, and which of them a place gets.

use super::raw::RulesetAttributes;

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIRECTORY: u64 = 1 << 3;
const MAKE_CHARACTER_DEVICE: u64 = 1 << 6;
const MAKE_BLOCK_DEVICE: u64 = 1 << 11;
const TRUNCATE: u64 = 1 << 14;
const CONTROL_DEVICE: u64 = 1 << 15;

const BIND_OR_CONNECT: u64 = 0b11;
const ABSTRACT_SOCKETS: u64 = 0b01;
pub(super) const SIGNALS: u64 = 0b10;

/// What executing a program takes.
pub(super) const RUN: u64 = EXECUTE | READ_FILE;

/// The first version that holds what a read-only place promises: before it, files could be truncated.
pub(super) const LEAST_FOR_FILES: u32 = 3;
/// The first version that handles TCP.
pub(super) const LEAST_FOR_NETWORK: u32 = 4;
/// The first version that keeps signals inside.
pub(super) const LEAST_FOR_SIGNALS: u32 = 6;

/// The rights of a kernel's version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    version: u32,
}

/// What is taken away from a sandbox as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// All access to files that no rule gives.
    pub(super) files: bool,
    /// All TCP.
    pub(super) network: bool,
    /// Abstract Unix sockets outside.
    pub(super) abstract_sockets: bool,
}

impl Rights {
    pub(super) fn new(version: u32) -> Self {
        Self { version }
    }

    /// Every right over files that this version knows.
    fn all(self) -> u64 {
        let count = match self.version {
            0 | 1 => 13,
            2 => 14,
            3 | 4 => 15,
            _ => 16,
        };
        (1 << count) - 1
    }

    /// What a ruleset handles, and how much of it this version knows. None if that is nothing.
    pub(super) fn handled(self, taken: Taken) -> Option<(RulesetAttributes, usize)> {
        let files = if taken.files { self.all() } else { 0 };
        let network = if taken.network && self.version >= LEAST_FOR_NETWORK { BIND_OR_CONNECT } else { 0 };
        let scopes = match self.version >= LEAST_FOR_SIGNALS {
            true if taken.abstract_sockets => SIGNALS | ABSTRACT_SOCKETS,
            true => SIGNALS,
            false => 0,
        };
        let bytes = match self.version {
            0..=3 => 8,
            4 | 5 => 16,
            _ => 24,
        };
        (files | network | scopes != 0).then_some((RulesetAttributes { files, network, scopes }, bytes))
    }

    /// What a ruleset handles whose holder may do nothing with files but what rules give, and signal everybody.
    pub(super) fn first(self) -> RulesetAttributes {
        RulesetAttributes { files: self.all(), network: 0, scopes: 0 }
    }

    /// To read, to list and to execute.
    pub(super) fn read(self, directory: bool) -> u64 {
        self.fit(EXECUTE | READ_FILE | READ_DIRECTORY, directory)
    }

    /// Everything but to make devices.
    pub(super) fn write(self, directory: bool) -> u64 {
        self.fit(!(MAKE_CHARACTER_DEVICE | MAKE_BLOCK_DEVICE), directory)
    }

    /// To list directories.
    pub(super) fn list(self) -> u64 {
        READ_DIRECTORY
    }

    /// To read and write what there is, and to control devices.
    pub(super) fn use_devices(self, directory: bool) -> u64 {
        self.fit(READ_FILE | WRITE_FILE | READ_DIRECTORY | TRUNCATE | CONTROL_DEVICE, directory)
    }

    /// To read, and to write what there is.
    pub(super) fn use_files(self) -> u64 {
        self.fit(EXECUTE | READ_FILE | READ_DIRECTORY | WRITE_FILE | TRUNCATE, true)
    }

    fn fit(self, rights: u64, directory: bool) -> u64 {
        // The kernel refuses rights over directories for a file.
        let possible = if directory { u64::MAX } else { EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | CONTROL_DEVICE };
        rights & possible & self.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: Taken = Taken { files: true, network: true, abstract_sockets: true };

    #[test]
    fn a_ruleset_asks_for_no_more_than_the_version_knows() {
        for (version, files, network, scopes, bytes) in [
            (1, 0x1fff, 0, 0, 8),
            (2, 0x3fff, 0, 0, 8),
            (3, 0x7fff, 0, 0, 8),
            (4, 0x7fff, 3, 0, 16),
            (5, 0xffff, 3, 0, 16),
            (6, 0xffff, 3, 3, 24),
            (9, 0xffff, 3, 3, 24),
        ] {
            let (handled, size) = Rights::new(version).handled(EVERYTHING).unwrap();
            assert_eq!((handled.files, handled.network, handled.scopes, size), (files, network, scopes, bytes));
        }
    }

    #[test]
    fn a_ruleset_that_would_handle_nothing_is_none() {
        let nothing = Taken { files: false, network: false, abstract_sockets: false };
        assert!(Rights::new(3).handled(nothing).is_none());
        assert!(Rights::new(6).handled(nothing).is_some(), "signals");
    }

    #[test]
    fn the_first_process_is_never_without_a_ruleset() {
        for version in 1..9 {
            let first = Rights::new(version).first();
            assert!(first.files & RUN == RUN && first.scopes == 0, "it runs its program, and signals everybody");
        }
    }

    #[test]
    fn nobody_makes_devices_and_files_get_no_rights_of_directories() {
        for version in 1..9 {
            let rights = Rights::new(version);
            let all = rights.all();
            assert_eq!(rights.write(true) & (MAKE_CHARACTER_DEVICE | MAKE_BLOCK_DEVICE), 0);
            for given in [rights.read(true), rights.write(true), rights.use_devices(true), rights.use_files()] {
                assert_eq!(given & !all, 0, "version {version}");
            }
            for given in [rights.read(false), rights.write(false)] {
                assert_eq!(given & READ_DIRECTORY, 0);
                assert_ne!(given, 0);
            }
            assert_eq!(rights.read(true) & WRITE_FILE, 0);
        }
    }
}
