use super::*;

fn uri(text: &str) -> PathUri {
    PathUri::parse(text).unwrap()
}

fn same_by_wire(intent: &SandboxIntent) {
    assert_eq!(SandboxIntent::from_json(&intent.to_json()).as_ref(), Ok(intent));
}

#[test]
fn presets_are_the_profiles_of_the_wire() {
    let root = uri("file:///srv/job");
    let entries = |intent: &SandboxIntent| {
        let shown = |entry: &Entry| format!("{:?} {:?}", entry.access, entry.path);
        intent.permissions.entries().iter().map(shown).collect::<Vec<_>>()
    };
    let project_roots = "Special { value: ProjectRoots { subpath: None } }";
    let read_only = SandboxIntent::read_only();
    assert_eq!(entries(&read_only), ["Read Special { value: Root }"]);
    let workspace = SandboxIntent::workspace_write([root.clone()]);
    assert_eq!(
        entries(&workspace),
        [
            "Read Special { value: Root }",
            &format!("Write {project_roots}"),
            "Write Special { value: Tmpdir }",
            "Write Special { value: SlashTmp }",
        ]
    );
    let minimal = SandboxIntent::minimal_read([root.clone()]);
    assert_eq!(entries(&minimal), ["Read Special { value: Minimal }", &format!("Read {project_roots}")]);
    let minimal_write = SandboxIntent::minimal_write([root.clone()]);
    assert_eq!(entries(&minimal_write)[1], format!("Write {project_roots}"));
    for intent in [&workspace, &minimal, &minimal_write] {
        assert_eq!(intent.workspace_roots, std::slice::from_ref(&root));
    }
    for intent in [read_only, workspace, minimal, minimal_write, SandboxIntent::no_network()] {
        assert!(!intent.restricts_nothing());
        same_by_wire(&intent);
    }
    assert!(SandboxIntent::disabled().restricts_nothing());
}

#[test]
fn methods_adapt_a_preset() {
    let intent = SandboxIntent::workspace_write([])
        .workspace_root(uri("file:///w"))
        .cwd(uri("file:///w"))
        .read(uri("file:///r"))
        .write(uri("file:///x"))
        .deny(uri("file:///d"))
        .deny_glob("*.pem")
        .write_below_roots(".git")
        .read_below_roots("vendor")
        .deny_below_roots("secret")
        .glob_scan_max_depth(NonZeroU32::MIN)
        .user_home_dir(uri("file:///h"))
        .temporary_directory(uri("file:///t"))
        .windows_level(WindowsSandboxLevel::Disabled)
        .network(NetworkPolicy::Enabled);
    same_by_wire(&intent);
    let json = intent.to_json();
    for part in [
        r#""workspaceRoots":["file:///w"]"#,
        r#""cwd":"file:///w""#,
        r#""temporaryDirectories":["file:///t"]"#,
        r#""userHomeDir":"file:///h""#,
        r#""network":"enabled""#,
        r#""glob_scan_max_depth":1"#,
        r#""windowsSandboxLevel":"disabled""#,
    ] {
        assert!(json.contains(part), "{part} in {json}");
    }
    assert_eq!(intent.permissions.entries().len(), 4 + 7);
}

#[test]
fn an_exception_to_an_open_profile_keeps_the_rest_open() {
    let denied = Entry::path(uri("file:///d"), Access::Deny);
    let opened = Entry::special(Special::Root, Access::Write);
    for (open, network) in [
        (SandboxIntent::disabled(), NetworkPolicy::Enabled),
        (SandboxIntent::no_network(), NetworkPolicy::Restricted),
        (
            SandboxIntent::new(PermissionProfile::External { network: NetworkPolicy::Restricted }),
            NetworkPolicy::Restricted,
        ),
    ] {
        let intent = open.deny(uri("file:///d"));
        assert_eq!(intent.permissions.entries(), [opened.clone(), denied.clone()]);
        let PermissionProfile::Managed { network: kept, .. } = intent.permissions else { panic!("managed") };
        assert_eq!(kept, network);
    }
    let offline = SandboxIntent::disabled().network(NetworkPolicy::Restricted);
    assert_eq!(offline, SandboxIntent::no_network());
    assert!(SandboxIntent::disabled().network(NetworkPolicy::Enabled).restricts_nothing());
}

#[test]
fn the_context_that_counts_is_the_one_that_changes() {
    let json = SandboxIntent::read_only().to_json();
    let json = json.replacen('{', r#"{"policyContext":{"workspaceRoots":[]},"#, 1);
    let intent = SandboxIntent::from_json(&json).unwrap().workspace_root(uri("file:///w")).cwd(uri("file:///c"));
    assert_eq!(intent.effective_roots(), [uri("file:///w")]);
    assert_eq!(intent.effective_cwd(), Some(&uri("file:///c")));
    assert!(intent.workspace_roots.is_empty() && intent.cwd.is_none());
}
