use super::*;
use crate::path_uri::PathUri;
use crate::sandbox::facts::{Facts, Platform};
use crate::sandbox::fake::{FakePaths, UID};
use crate::sandbox::intent::SandboxIntent;

fn uri(path: &str) -> PathUri {
    PathUri::parse(&format!("file://{path}")).unwrap()
}

fn bind(intent: &SandboxIntent) -> Bound {
    let fake = FakePaths::new(&[
        "/Users/u/w/.git/hooks/",
        "/Users/u/w/secret/open/",
        "/Users/u/k/",
        "/private/tmp/",
        "/tmp -> private/tmp",
        "/usr/bin/",
        "/System/",
    ]);
    intent.bind(&Facts::new(Platform::MacOs, &fake).uid(Some(UID))).unwrap()
}

fn policy(intent: &SandboxIntent, managed: Option<&ManagedNetworkFacts>) -> SeatbeltPolicy {
    SeatbeltPolicy::new(&bind(intent), managed, Some(Path::new("/private/var/folders/c"))).unwrap()
}

/// The part of the policy that is not the same for all.
fn own_part(policy: &SeatbeltPolicy) -> Vec<&str> {
    let text = policy.text.strip_prefix(BASE).expect("the base comes first");
    let (own, globs) = text.split_once(LAST).expect("the last denials");
    own.lines().chain(globs.lines()).collect()
}

fn workspace() -> SandboxIntent {
    SandboxIntent::workspace_write([uri("/Users/u/w")])
}

#[test]
fn read_only_allows_to_read_everything() {
    let policy = policy(&SandboxIntent::read_only(), None);
    assert_eq!(
        own_part(&policy),
        [
            "; files to read and to execute",
            r#"(allow file-read* file-map-executable process-exec (regex "^/"))"#,
            "; files to write",
        ]
    );
    assert!(policy.parameters.is_empty());
    assert_eq!(policy.arguments()[0], "-p");
    assert_eq!(policy.arguments()[2], "--");
}

#[test]
fn a_workspace_is_written_without_its_protected_names() {
    let policy = policy(&workspace().write_below_roots(".git/hooks"), None);
    let excluded = |number: usize| {
        let parameter = format!("(param \"WRITABLE_ROOT_0_EXCLUDED_{number}\")");
        format!("(require-not (literal {parameter})) (require-not (subpath {parameter}))")
    };
    let any_case = |name: &str| format!(r#"(require-not (regex "^/Users/u/w/\\.{name}(/.*)?$"))"#);
    let exclusions = (0..4)
        .map(excluded)
        .chain(["[aA][gG][eE][nN][tT][sS]", "[aA][wW][sS]", "[cC][oO][dD][eE][xX]", "[gG][iI][tT]"].map(any_case));
    let exclusions = exclusions.collect::<Vec<_>>().join(" ");
    assert_eq!(
        own_part(&policy),
        [
            "; files to read and to execute",
            r#"(allow file-read* file-map-executable process-exec (regex "^/"))"#,
            "; files to write",
            &format!(r#"(allow file-write* (require-all (subpath (param "WRITABLE_ROOT_0")) {exclusions}))"#),
            r#"(allow file-write* (subpath (param "WRITABLE_ROOT_1")))"#,
            r#"(allow file-write* (subpath (param "WRITABLE_ROOT_2")))"#,
            r#"(allow file-write* (subpath (param "WRITABLE_ROOT_2_ALIAS_1")))"#,
            r#"(deny file-write-unlink (literal (param "HELD_0")))"#,
            r#"(deny file-write-unlink (literal (param "HELD_1")))"#,
            r#"(deny file-write-unlink (literal (param "HELD_2")))"#,
            r#"(deny file-write-unlink (literal (param "HELD_3")))"#,
        ]
    );
    let path =
        |name: &str| policy.parameters.iter().find(|(given, _)| given == name).map(|(_, path)| path.to_str().unwrap());
    for (name, expected) in [
        ("WRITABLE_ROOT_0", "/Users/u/w"),
        ("WRITABLE_ROOT_0_EXCLUDED_0", "/Users/u/w/.agents"),
        ("WRITABLE_ROOT_0_EXCLUDED_3", "/Users/u/w/.git"),
        ("WRITABLE_ROOT_1", "/Users/u/w/.git/hooks"),
        ("WRITABLE_ROOT_2", "/private/tmp"),
        ("WRITABLE_ROOT_2_ALIAS_1", "/tmp"),
        ("HELD_0", "/Users/u/w"),
        ("HELD_1", "/Users/u/w/.git/hooks"),
        ("HELD_2", "/private/tmp"),
        ("HELD_3", "/tmp"),
    ] {
        assert_eq!(path(name), Some(expected), "{name}");
    }
    assert!(policy.arguments().contains(&"-DWRITABLE_ROOT_0=/Users/u/w".into()));
}

#[test]
fn what_is_denied_is_left_out_and_what_is_open_again_is_a_rule_of_its_own() {
    let intent = SandboxIntent::read_only().deny(uri("/Users/u/w/secret")).read(uri("/Users/u/w/secret/open"));
    let policy = policy(&intent, None);
    assert_eq!(
        own_part(&policy),
        [
            "; files to read and to execute",
            r#"(allow file-read* file-map-executable process-exec (require-all (regex "^/") (require-not (literal (param "READABLE_ROOT_ALL_EXCLUDED_0"))) (require-not (subpath (param "READABLE_ROOT_ALL_EXCLUDED_0")))))"#,
            r#"(allow file-read* file-map-executable process-exec (subpath (param "READABLE_ROOT_0")))"#,
            "; files to write",
            r#"(allow file-read-metadata file-test-existence (literal (param "ANCESTOR_0")))"#,
        ]
    );
    assert_eq!(policy.parameters.last().unwrap().1, Path::new("/Users/u/w/secret"));
}

#[test]
fn minimal_reads_find_the_directories_above_them() {
    let policy = policy(&SandboxIntent::minimal_read([uri("/Users/u/w")]), None);
    let own = own_part(&policy);
    let reads: Vec<_> = policy
        .parameters
        .iter()
        .filter(|(name, _)| name.starts_with("READABLE"))
        .map(|(_, path)| path.to_str().unwrap())
        .collect();
    assert_eq!(reads, ["/System", "/Users/u/w", "/usr"]);
    let ancestors: Vec<_> = policy
        .parameters
        .iter()
        .filter(|(name, _)| name.starts_with("ANCESTOR"))
        .map(|(_, path)| path.to_str().unwrap())
        .collect();
    assert_eq!(ancestors, ["/", "/Users", "/Users/u"]);
    assert!(!own.iter().any(|line| line.contains("file-write*")), "{own:?}");
}

#[test]
fn patterns_stand_last_and_cover_what_appears_later() {
    let intent = SandboxIntent::read_only().deny_glob("/tmp/**/*.pem").deny_glob("/Users/u/k/\"x?\\*");
    let policy = policy(&intent, None);
    let own = own_part(&policy);
    assert_eq!(
        own[3..],
        [
            r#"(deny file-read* file-map-executable file-write* process-exec (regex "^/Users/u/k/\"x[^/]\\*(/.*)?$"))"#,
            r#"(deny file-read* file-map-executable file-write* process-exec (regex "^/private/tmp/(.*/)?[^/]*\\.pem(/.*)?$"))"#,
            r#"(deny file-read* file-map-executable file-write* process-exec (regex "^/tmp/(.*/)?[^/]*\\.pem(/.*)?$"))"#,
        ]
    );
    let control = bind(&SandboxIntent::read_only().deny_glob("/Users/u/k/\n*"));
    assert!(SeatbeltPolicy::new(&control, None, None).is_err());
}

#[test]
fn nothing_in_a_path_becomes_policy() {
    let odd = "/Users/u/k/\") (allow default) (\"";
    let intent =
        SandboxIntent::workspace_write([
            PathUri::from_native_text(odd, crate::path_uri::PathConvention::Posix).unwrap()
        ]);
    let fake = FakePaths::new(&[&format!("{odd}/")]);
    let bound = intent.bind(&Facts::new(Platform::MacOs, &fake)).unwrap();
    let policy = SeatbeltPolicy::new(&bound, None, None).unwrap();
    assert!(policy.parameters.iter().any(|(name, path)| name == "WRITABLE_ROOT_0" && path == Path::new(odd)));
    for line in policy.text.lines().filter(|line| line.contains("allow default")) {
        // Only within the quotes of a regular expression.
        assert!(line.contains(r#"\"\\) \\(allow default\\) \\(\""#), "{line}");
    }
}

#[test]
fn the_network_is_closed_managed_or_open() {
    let network = |intent: &SandboxIntent, managed: Option<&ManagedNetworkFacts>| {
        let policy = policy(intent, managed);
        let (own, _) = policy.text.split_once(LAST).unwrap();
        let own = own.strip_prefix(BASE).unwrap_or(own);
        own.lines()
            .filter(|line| line.contains("network") || line.contains("socket"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let read_only = SandboxIntent::read_only();
    assert_eq!(network(&read_only, None), [""; 0]);
    let open = policy(&read_only.clone().network(NetworkPolicy::Enabled), None);
    assert!(open.text.contains(NETWORK) && open.text.contains(r#"(subpath (param "USER_CACHE_DIR"))"#));
    let mut facts = ManagedNetworkFacts::ports([8081, 8080, 8080, 0]);
    let ports = [
        "; the network by way of a proxy",
        r#"(allow network-outbound (remote ip "localhost:8080"))"#,
        r#"(allow network-outbound (remote ip "localhost:8081"))"#,
    ];
    // Managed goes before enabled: that is its point.
    for allowed in [NetworkPolicy::Restricted, NetworkPolicy::Enabled] {
        assert_eq!(network(&read_only.clone().network(allowed), Some(&facts)), ports);
    }
    facts.allow_unix_sockets = vec!["/tmp/s".into(), "relative".into()];
    assert_eq!(
        network(&read_only, Some(&facts))[3..],
        [
            "(allow system-socket (socket-domain AF_UNIX))",
            r#"(allow network-bind (local unix-socket (subpath (param "UNIX_SOCKET_0"))))"#,
            r#"(allow network-outbound (remote unix-socket (subpath (param "UNIX_SOCKET_0"))))"#,
            r#"(allow network-bind (local unix-socket (subpath (param "UNIX_SOCKET_1"))))"#,
            r#"(allow network-outbound (remote unix-socket (subpath (param "UNIX_SOCKET_1"))))"#,
        ]
    );
    facts.allow_local_binding = true;
    facts.dangerously_allow_all_unix_sockets = true;
    let everything = network(&read_only, Some(&facts));
    assert!(everything.contains(&r#"(allow network-bind (local ip "localhost:*"))"#.into()));
    assert!(everything.contains(&"(allow network-outbound (remote unix-socket))".into()));
    // Without ports nobody knows what is the proxy.
    facts.loopback_ports.clear();
    assert_eq!(network(&read_only, Some(&facts)), ["; the network by way of a proxy"]);
    let offline = SandboxIntent::no_network();
    assert_eq!(network(&offline, None), ["(deny network*)"]);
    assert_eq!(
        network(&offline, Some(&ManagedNetworkFacts::ports([1])))[2..],
        [r#"(allow network-outbound (remote ip "localhost:1"))"#,]
    );
}

#[test]
fn a_missing_name_is_held_in_every_spelling_and_what_leads_to_it_stays_in_place() {
    let intent = workspace().deny(uri("/Users/u/w/secret/open/new"));
    let policy = policy(&intent, None);
    let held =
        |path: &str| policy.parameters.iter().any(|(name, of)| name.starts_with("HELD_") && of == Path::new(path));
    for path in ["/Users/u/w", "/Users/u/w/secret", "/Users/u/w/secret/open"] {
        assert!(held(path), "{path}");
    }
    assert!(!held("/Users/u") && !held("/"));
    assert!(
        policy.text.contains(r#"(require-not (regex "^/Users/u/w/secret/open/[nN][eE][wW](/.*)?$"))"#),
        "{}",
        policy.text
    );
}

#[test]
fn matches_of_patterns_keep_their_directories_in_place() {
    let fake = FakePaths::new(&["/Users/u/w/keys/a.pem", "/tmp/"]);
    let intent = workspace().cwd(uri("/Users/u/w")).deny_glob("**/*.pem");
    let mut bound = intent.bind(&Facts::new(Platform::MacOs, &fake)).unwrap();
    bound.expand_globs(&fake).unwrap();
    let policy = SeatbeltPolicy::new(&bound, None, None).unwrap();
    let held =
        |path: &str| policy.parameters.iter().any(|(name, of)| name.starts_with("HELD_") && of == Path::new(path));
    assert!(held("/Users/u/w") && held("/Users/u/w/keys"), "{:?}", policy.parameters);
    assert!(!policy.parameters.iter().any(|(_, path)| path.ends_with("a.pem")), "the pattern denies it");
}

#[test]
fn what_no_policy_can_name_is_refused() {
    let fake = FakePaths::new(&["/System/Volumes/Data/Users/u/w/"]);
    let intent = SandboxIntent::read_only().deny(uri("/System/Volumes/Data/Users/u/w"));
    let bound = intent.bind(&Facts::new(Platform::MacOs, &fake)).unwrap();
    let error = SeatbeltPolicy::new(&bound, None, None).unwrap_err();
    assert!(error.to_string().contains(DATA_VOLUME), "{error}");
    let name = "a-name-that-is-not-short".repeat(7);
    let many = (0..4000)
        .fold(SandboxIntent::read_only(), |intent, number| intent.deny(uri(&format!("/Users/u/w/{name}-{number}"))));
    let error = SeatbeltPolicy::new(&bind(&many), None, None).unwrap_err();
    assert!(error.to_string().contains("more than a policy"), "{error}");
}

mod oracle;
