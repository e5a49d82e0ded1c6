use std::fmt;

use proptest::prelude::*;

use super::*;
#[cfg(unix)]
use crate::path_uri::PathUri;
use crate::sandbox::fake::FakePaths;
#[cfg(unix)]
use crate::sandbox::{Access, NetworkPolicy};
use crate::sandbox::{Bound, Facts, Platform};

#[cfg(unix)]
fn uri(path: &str) -> PathUri {
    PathUri::parse(&format!("file://{path}")).unwrap()
}

fn bind(intent: SandboxIntent) -> Result<Bound, SandboxError> {
    // The paths are those of the system of the test; what is decided does not depend on their form.
    let fake = FakePaths::new(&["/w/", "/tmp/"]);
    intent.bind(&Facts::new(Platform::Windows, &fake))
}

#[cfg(unix)]
fn with_token(intent: SandboxIntent) -> Bound {
    bind(intent.windows_level(WindowsSandboxLevel::RestrictedToken)).unwrap()
}

fn cause(refused: Result<impl fmt::Debug, SandboxError>) -> String {
    match refused.unwrap_err() {
        SandboxError::Unavailable { cause, remedy: Some(remedy) } if !remedy.is_empty() => cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn levels_that_are_not_there_are_refused_with_a_remedy() {
    bind(SandboxIntent::disabled()).unwrap();
    for level in [WindowsSandboxLevel::Disabled, WindowsSandboxLevel::Elevated, WindowsSandboxLevel::Mxc] {
        cause(bind(SandboxIntent::read_only().windows_level(level)));
        cause(bind(SandboxIntent::no_network().windows_level(level)));
    }
    for level in [WindowsSandboxLevel::Elevated, WindowsSandboxLevel::Mxc] {
        cause(bind(SandboxIntent::disabled().windows_level(level)));
    }
}

#[cfg(unix)]
#[test]
fn only_that_nothing_is_written_can_be_enforced_and_only_in_part() {
    let read_only = || with_token(SandboxIntent::read_only());
    assert!(cause(admit(&read_only(), false, false)).contains("the network is not restricted"));
    assert_eq!(admit(&read_only(), false, true).unwrap().len(), 4);
    let open = with_token(SandboxIntent::read_only().network(NetworkPolicy::Enabled));
    assert_eq!(admit(&open, false, true).unwrap().len(), 3);
    cause(admit(&open, false, false));
    for accept in [false, true] {
        assert!(cause(admit(&read_only(), true, accept)).contains("ports"));
        assert!(cause(admit(&with_token(SandboxIntent::no_network()), false, accept)).contains("network"));
        let denied = with_token(SandboxIntent::read_only().deny(uri("/w")));
        assert!(cause(admit(&denied, false, accept)).contains("reads"));
        let minimal = with_token(SandboxIntent::minimal_read([uri("/w")]));
        assert!(cause(admit(&minimal, false, accept)).contains("reads"));
        let writes = with_token(SandboxIntent::workspace_write([uri("/w")]));
        assert!(cause(admit(&writes, false, accept)).contains("access control"));
        let all_but = with_token(SandboxIntent::read_only().read(uri("/w")));
        assert!(admit(&Bound { root: Some(Access::Write), ..all_but }, false, accept).is_err());
    }
    // A root that is missing is none.
    admit(&with_token(SandboxIntent::workspace_write([uri("/missing")])), false, true).unwrap();
}

#[test]
fn identities_have_the_forms_of_the_system() {
    for (sid, text, bytes) in [
        (Sid::everyone(), "S-1-1-0", &[1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0][..]),
        (Sid::system(), "S-1-5-18", &[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0]),
        (
            Sid::of_sandbox(0x0000_0001_0000_0002_0000_0003_ffff_ffff),
            "S-1-5-21-1-2-3-4294967295",
            &[1, 5, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 255, 255, 255, 255],
        ),
    ] {
        assert_eq!((sid.to_string(), sid.bytes()), (text.to_owned(), bytes.to_vec()));
        assert_eq!(Sid::from_bytes(bytes), Some(sid));
        assert_eq!(Sid::from_bytes(&bytes[..bytes.len() - 1]), None);
    }
    assert_eq!(Sid::from_bytes(&[2, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]), None);
}

#[test]
fn a_token_is_restricted_to_its_own_identity_the_logon_and_everyone() {
    let (user, logon) = (Sid::of_sandbox(7), Sid::of_sandbox(8));
    let plan = TokenPlan::new(&user, Some(logon.clone()), 9);
    assert_eq!(plan.flags, 0xd);
    assert_eq!(plan.restricting, [Sid::of_sandbox(9), logon, Sid::everyone()]);
    assert_eq!(TokenPlan::new(&user, None, 9).restricting, [Sid::of_sandbox(9), Sid::everyone()]);
    let list = &plan.default_acl;
    // Its header: revision, size, number of entries.
    assert_eq!(list[..8], [2, 0, 8 + 36 + 36 + 20, 0, 3, 0, 0, 0]);
    assert_eq!(list.len(), 8 + 36 + 36 + 20);
    assert_eq!(list[8..16], [0, 0, 36, 0, 0, 0, 0, 0x10]);
    assert_eq!(Sid::from_bytes(&list[16..]), Some(Sid::of_sandbox(9)));
    assert_eq!(Sid::from_bytes(&list[52..]), Some(user));
    assert_eq!(Sid::from_bytes(&list[88..]), Some(Sid::system()));
}

proptest! {
    #[test]
    fn identities_survive_the_system(random: u128, bytes: Vec<u8>) {
        let sid = Sid::of_sandbox(random);
        prop_assert_eq!(Sid::from_bytes(&sid.bytes()), Some(sid));
        if let Some(sid) = Sid::from_bytes(&bytes) {
            prop_assert!(bytes.starts_with(&sid.bytes()));
        }
    }
}
