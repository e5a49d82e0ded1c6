mod oracle;
#[cfg(target_os = "linux")]
mod scenes;

use super::*;
use crate::sandbox::bound::ProtectedName;
use crate::sandbox::facts::PathIdentity;
use crate::sandbox::fake::{FakePaths, UID};
use crate::sandbox::host::HostPaths;
use crate::sandbox::settings::SandboxSettings;

fn uri(path: &str) -> PathUri {
    PathUri::parse(&format!("file://{path}")).unwrap()
}

/// A workspace of the user's below a directory that he may not write, with some more around it.
fn machine() -> FakePaths {
    FakePaths::new(&[
        "/srv/w/.git/hooks/",
        "/srv/w/src/",
        "/srv/w/secret/f",
        "/srv/w/link -> /srv/out",
        "/srv/w/own -> src",
        "/srv/out/x",
        "/srv/alias -> w",
        "/tmp/mine/",
        "/tmp/theirs/",
        "/usr/bin/",
        "/etc/",
        "/bin -> usr/bin",
    ])
    .owned("/tmp", 0)
    .owned("/tmp/theirs", 1)
}

fn try_bind(fake: &FakePaths, intent: &SandboxIntent) -> Result<Bound, SandboxError> {
    intent.bind(&Facts::new(Platform::Linux, fake).temp_dir(Path::new("/tmp/mine")).uid(Some(UID)))
}

fn bind(fake: &FakePaths, intent: &SandboxIntent) -> Bound {
    try_bind(fake, intent).unwrap_or_else(|error| panic!("{intent:?}: {error}"))
}

fn refusal(fake: &FakePaths, intent: &SandboxIntent) -> String {
    match try_bind(fake, intent) {
        Err(SandboxError::Preparation { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

fn workspace() -> SandboxIntent {
    SandboxIntent::workspace_write([uri("/srv/w")])
}

#[track_caller]
fn assert_access(bound: &Bound, expected: &[(&str, Option<Access>)]) {
    for (path, access) in expected {
        assert_eq!(bound.access(Path::new(path)), *access, "{path}");
    }
}

use Access::{Deny, Read, Write};

#[test]
fn the_usual_profiles_have_their_classes() {
    let fake = machine();
    let open = |network| SandboxIntent::new(PermissionProfile::External { network });
    for (intent, class) in [
        (SandboxIntent::disabled(), Class::Nothing),
        (open(NetworkPolicy::Enabled), Class::Nothing),
        (open(NetworkPolicy::Restricted), Class::FullWrite),
        (SandboxIntent::no_network(), Class::FullWrite),
        (SandboxIntent::no_network().write(uri("/srv")), Class::FullWrite),
        (SandboxIntent::no_network().write(uri("/srv")).network(NetworkPolicy::Enabled), Class::Nothing),
        (SandboxIntent::no_network().read(uri("/srv")), Class::FullRead),
        (SandboxIntent::read_only(), Class::FullRead),
        (workspace(), Class::FullRead),
        (workspace().network(NetworkPolicy::Enabled), Class::FullRead),
        (workspace().deny_below_roots("secret"), Class::RestrictedRead),
        (workspace().deny_glob("/srv/**/*.pem"), Class::RestrictedRead),
        (SandboxIntent::minimal_read([uri("/srv/w")]), Class::RestrictedRead),
        (SandboxIntent::read_only().entry(Entry::special(Special::Root, Deny)), Class::RestrictedRead),
    ] {
        assert_eq!(bind(&fake, &intent).class, class, "{intent:?}");
    }
}

#[test]
fn a_workspace_is_writable_but_for_its_protected_names() {
    let bound = bind(&machine(), &workspace());
    assert_access(
        &bound,
        &[
            ("/srv/w/src", Some(Write)),
            ("/srv/w/.git/config", Some(Read)),
            ("/srv/w/.codex", Some(Read)),
            ("/srv/w/.aws/x", Some(Read)),
            ("/srv/w/src/.git", Some(Write)),
            ("/srv/out", Some(Read)),
            ("/tmp/other", Some(Write)),
            ("/tmp/.git", Some(Write)),
        ],
    );
    let names: Vec<_> = bound.protected.iter().map(|name| (name.path.to_str().unwrap(), name.state)).collect();
    assert_eq!(
        names,
        [
            ("/srv/w/.agents", Existing::Missing),
            ("/srv/w/.aws", Existing::Missing),
            ("/srv/w/.codex", Existing::Missing),
            ("/srv/w/.git", Existing::Directory),
        ]
    );
    assert!(bound.protected.iter().all(|name| name.placeholder && name.root == Path::new("/srv/w")));
    assert_eq!(bound.workspace_roots, [Path::new("/srv/w")]);
}

#[test]
fn a_workspace_root_that_is_a_file_is_writable_and_holds_no_names() {
    let fake = machine();
    let bound = bind(&fake, &SandboxIntent::workspace_write([uri("/srv/out/x"), uri("/srv/w")]));
    assert_access(&bound, &[("/srv/out/x", Some(Write)), ("/srv/out", Some(Read)), ("/srv/w/.aws", Some(Read))]);
    assert!(bound.protected.iter().all(|name| name.root == Path::new("/srv/w")), "{:?}", bound.protected);
    assert_eq!(bound.protected.len(), 4);
}

#[test]
fn what_stands_for_the_directory_of_temporary_files_is_denied_whatever_it_is() {
    for thing in ["/tmp", "/tmp -> /srv/file", "/srv/"] {
        let fake = FakePaths::new(&[thing, "/srv/file"]);
        let slash_tmp = |access| Entry::special(Special::SlashTmp, access);
        let denied = bind(&fake, &SandboxIntent::read_only().entry(slash_tmp(Deny)));
        let path = if thing.contains("->") { "/srv/file" } else { "/tmp" };
        assert_access(&denied, &[(path, Some(Deny)), ("/srv", Some(Read))]);
        let written = bind(&fake, &SandboxIntent::read_only().entry(slash_tmp(Write)));
        assert_access(&written, &[(path, Some(Read))]);
    }
}

#[test]
fn a_link_above_what_is_no_directory_leads_nowhere_and_allows_nothing() {
    for target in ["gone/../src", "file/../src", "gone/..", "file/.."] {
        let fake = FakePaths::new(&["/srv/w/src/", "/srv/w/file", &format!("/srv/w/link -> {target}")]);
        for access in [Read, Write] {
            let bound = bind(&fake, &SandboxIntent::minimal_read([]).entry(Entry::path(uri("/srv/w/link"), access)));
            assert_access(&bound, &[("/srv/w", None), ("/srv/w/src", None)]);
        }
        let denying = SandboxIntent::read_only().deny(uri("/srv/w/link"));
        assert_access(&bind(&fake, &denying), &[("/srv/w/src", Some(Deny))]);
    }
}

#[test]
fn roots_come_from_the_intent_and_never_from_its_directory() {
    let fake = machine();
    let bound = bind(&fake, &SandboxIntent::workspace_write([]).cwd(uri("/srv/w")));
    assert_access(&bound, &[("/srv/w", Some(Read))]);
    assert_eq!(bound.cwd.as_deref(), Some(Path::new("/srv/w")));
    let bound = bind(&fake, &workspace().workspace_root(uri("/srv/out")).workspace_root(uri("/srv/none")));
    assert_access(&bound, &[("/srv/out/x", Some(Write)), ("/srv/w", Some(Write)), ("/srv/none", Some(Read))]);
    assert_eq!(bound.workspace_roots.len(), 2);
    let mut context = workspace();
    context.policy_context =
        Some(super::super::intent::PolicyContext { cwd: None, workspace_roots: vec![uri("/srv/out")] });
    assert_access(&bind(&fake, &context), &[("/srv/out/x", Some(Write)), ("/srv/w", Some(Read))]);
}

#[test]
fn a_write_entry_frees_a_protected_name_or_a_part_of_it() {
    let fake = machine();
    let freed = bind(&fake, &workspace().write_below_roots(".git"));
    assert_access(&freed, &[("/srv/w/.git/config", Some(Write)), ("/srv/w/.codex", Some(Read))]);
    assert!(!freed.protected.iter().any(|name| name.path.ends_with(".git")));
    let hooks = bind(&fake, &workspace().write_below_roots(".git/hooks"));
    assert_access(&hooks, &[("/srv/w/.git/config", Some(Read)), ("/srv/w/.git/hooks/x", Some(Write))]);
    // A name that is to be made.
    let made = bind(&fake, &workspace().write_below_roots(".codex"));
    assert_access(&made, &[("/srv/w/.codex/x", Some(Write))]);
    let denied = bind(&fake, &workspace().deny_below_roots(".git"));
    assert_access(&denied, &[("/srv/w/.git", Some(Deny))]);
}

#[test]
fn an_owner_protects_more_names() {
    let settings = SandboxSettings::default().protect_name(".vscode");
    let fake = machine();
    let facts = Facts::new(Platform::Linux, &fake).settings(&settings);
    assert_access(&workspace().bind(&facts).unwrap(), &[("/srv/w/.vscode/x", Some(Read)), ("/srv/w/.git", Some(Read))]);
    for name in ["", ".", "..", "a/b"] {
        let settings = SandboxSettings::default().protect_name(name);
        let facts = Facts::new(Platform::Linux, &fake).settings(&settings);
        assert!(matches!(workspace().bind(&facts), Err(SandboxError::Preparation { .. })), "{name}");
    }
}

#[test]
fn a_git_file_protects_the_directory_that_it_names() {
    let fake =
        FakePaths::new(&["/srv/main/.git/worktrees/w/"]).text("/srv/w/.git", "gitdir: ../main/.git/worktrees/w\n");
    let both = workspace().workspace_root(uri("/srv/main"));
    let git_dir = Path::new("/srv/main/.git/worktrees/w");
    let bound = bind(&fake, &both);
    let name = bound.protected.iter().find(|name| name.path == Path::new("/srv/w/.git")).unwrap();
    assert_eq!((name.state, name.git_dir.as_deref()), (Existing::File, Some(git_dir)));
    // Where the repository itself is freed, that directory is not.
    let freed = bind(&fake, &workspace().write(uri("/srv/main")));
    assert_access(&freed, &[("/srv/main/x", Some(Write)), ("/srv/main/.git/worktrees/w/HEAD", Some(Read))]);
    let freed = bind(&fake, &workspace().write(uri("/srv/main")).write(uri("/srv/main/.git/worktrees/w")));
    assert_access(&freed, &[("/srv/main/.git/worktrees/w/HEAD", Some(Write))]);
    // Nor what it has in common with others: hooks, and what else is executed outside.
    let worktree = fake.text("/srv/main/.git/worktrees/w/commondir", "../..\n").with("/srv/main/.git/hooks/");
    let freed = bind(&worktree, &workspace().write(uri("/srv/main")));
    assert_access(&freed, &[("/srv/main/x", Some(Write)), ("/srv/main/.git/hooks/x", Some(Read))]);
    let freed = bind(&worktree, &workspace().write(uri("/srv/main")).write(uri("/srv/main/.git")));
    assert_access(&freed, &[("/srv/main/.git/hooks/x", Some(Write)), ("/srv/main/.git/worktrees/w/HEAD", Some(Read))]);
    let freed = bind(&worktree, &workspace().write(uri("/srv/main")).write_below_roots(".git"));
    assert_access(&freed, &[("/srv/main/.git/hooks/x", Some(Write)), ("/srv/main/.git/worktrees/w/HEAD", Some(Write))]);
    for common in ["", "/", "none", "commondir"] {
        let odd = worktree.clone().text("/srv/main/.git/worktrees/w/commondir", common);
        let bound = bind(&odd, &workspace().write(uri("/srv/main")));
        assert_access(&bound, &[("/srv/main/x", Some(Write)), ("/srv/main/.git/worktrees/w/HEAD", Some(Read))]);
    }
    // It only ever takes away: what a file in the workspace names is in the hands of a process.
    let fake = FakePaths::new(&["/root/s", "/usr/bin/"]).text("/srv/w/.git", "gitdir: /root");
    assert_access(&bind(&fake, &SandboxIntent::minimal_write([uri("/srv/w")])), &[("/root/s", None)]);
    let fake = FakePaths::new(&["/srv/x/"]).text("/srv/w/.git", "gitdir: /");
    let bound = bind(&fake, &SandboxIntent::no_network().workspace_root(uri("/srv/w")).deny(uri("/srv/x")));
    assert!(bound.entries.iter().all(|entry| entry.path.parent().is_some()), "{bound:?}");
    assert_access(&bound, &[("/srv/y", Some(Write)), ("/srv/w/.git", Some(Read))]);
    let fake = FakePaths::new(&["/srv/w/l -> /srv/g", "/srv/g/"]).text("/srv/w/.git", "gitdir: l");
    assert!(refusal(&fake, &workspace()).contains("/srv/w/l"));
}

#[test]
fn a_missing_git_within_a_larger_repository_gets_no_placeholder() {
    let fake = FakePaths::new(&["/srv/.git/HEAD", "/srv/w/"]);
    let bound = bind(&fake, &workspace());
    let held: Vec<_> = bound.protected.iter().map(|name| name.placeholder).collect();
    assert_eq!(held, [true, true, true, false]);
    assert_access(&bound, &[("/srv/w/.git", Some(Read))]);
    assert!(!bound.protected.iter().any(|name| name.required));
    // What an entry asks for is no matter of taste.
    for access in [Deny, Read] {
        let asked = bind(&fake, &workspace().entry(Entry::path(uri("/srv/w/.git"), access)));
        let names = asked.protected.iter().map(|name| (name.required, name.placeholder, name.access));
        let git = (true, true, access);
        assert_eq!(names.collect::<Vec<_>>(), [(false, true, Read), (false, true, Read), (false, true, Read), git]);
    }
}

#[test]
fn a_repository_is_what_a_process_could_not_have_made() {
    let is_larger = |fake: &FakePaths, intent: &SandboxIntent| {
        let bound = bind(fake, intent);
        let git = bound.protected.iter().find(|name| name.path == Path::new("/srv/t/w/.git")).unwrap();
        assert!(git.state == Existing::Missing && !git.required);
        !git.placeholder
    };
    let narrow = SandboxIntent::workspace_write([uri("/srv/t/w")]);
    let [wide, roots] =
        [narrow.clone().write(uri("/srv/t")), SandboxIntent::workspace_write([uri("/srv/t"), uri("/srv/t/w")])];
    let git = |thing: &str| FakePaths::new(&["/srv/t/w/", "/real/git/HEAD", "/real/none/"]).with(thing);
    for (fake, expected) in [
        (git("/srv/t/.git/HEAD"), true),
        (git("/srv/t/.git/HEAD -> refs/heads/main"), true),
        (git("/srv/t/.git -> ../../real/git"), true),
        (git("/srv/t/.git -> /real/none"), false),
        (git("/srv/t/.git -> /srv/t/w"), false),
        (git("/srv/t/.git -> .git"), false),
        (git("/srv/t/.git/"), false),
        (git("/srv/t/.git/HEAD/"), false),
        (git("/srv/t/.git/config"), false),
        (git("/srv/t/.git/HEAD").blocked("/srv/t/.git"), false),
        (git("/srv/t/other").text("/srv/t/.git", "gitdir: /real/git\n"), true),
        (git("/srv/t/other").text("/srv/t/.git", "git"), false),
        (git("/srv/t/other").text("/srv/t/.git", ""), false),
        // Nor anybody else.
        (git("/srv/t/.git/HEAD").owned("/srv/t/.git", UID + 1), false),
        (git("/srv/t/.git/HEAD").owned("/srv/t/.git", 0), true),
        (git("/srv/t/other").text("/srv/t/.git", "gitdir: /real/git\n").owned("/srv/t/.git", UID + 1), false),
    ] {
        assert_eq!(is_larger(&fake, &narrow), expected, "{fake:?}");
        assert!(!is_larger(&fake, &wide), "whoever writes there could have made it: {fake:?}");
    }
    for (fake, expected) in [(git("/srv/t/.git/HEAD"), true), (git("/srv/t/.git/"), false), (git("/srv/x"), false)] {
        assert_eq!(is_larger(&fake, &roots), expected, "the outer one is protected: {fake:?}");
        assert!(!is_larger(&fake, &roots.clone().write(uri("/srv/t/.git"))));
        // One further up counts whatever is nearer.
        assert!(is_larger(&fake.with("/srv/.git/HEAD"), &wide));
    }
}

#[test]
fn links_lead_to_what_they_mean() {
    let fake = machine();
    let bound = bind(&fake, &SandboxIntent::workspace_write([uri("/srv/alias")]));
    assert_access(&bound, &[("/srv/w/src", Some(Write)), ("/srv/w/.git", Some(Read))]);
    assert_eq!(bound.aliases, [Alias { link: "/srv/alias".into(), target: "w".into() }]);
    assert_eq!(bound.entry(Path::new("/srv/w")).unwrap().lexical, Path::new("/srv/alias"));
    let denied = bind(&fake, &SandboxIntent::read_only().deny(uri("/srv/alias/secret/f")));
    assert_access(&denied, &[("/srv/w/secret/f", Some(Deny))]);
    let minimal = bind(&fake, &SandboxIntent::minimal_read([]));
    assert!(minimal.minimal);
    assert_access(&minimal, &[("/usr/bin/x", Some(Read)), ("/etc", Some(Read)), ("/srv", None), ("/", None)]);
    assert!(minimal.aliases.contains(&Alias { link: "/bin".into(), target: "usr/bin".into() }));
}

#[test]
fn nothing_hangs_on_a_link_that_a_process_could_exchange() {
    let fake = machine();
    for intent in [
        workspace().deny(uri("/srv/w/link/x")),
        workspace().read(uri("/srv/w/link")),
        workspace().deny_below_roots("own"),
        workspace().write(uri("/srv/w/link")),
        workspace().deny_glob("/srv/w/link/*.pem"),
    ] {
        assert!(refusal(&fake, &intent).contains("/srv/w/"), "{intent:?}");
    }
    // This one changes nothing.
    bind(&fake, &workspace().write(uri("/srv/w/own")));
    let linked = FakePaths::new(&["/srv/w/.codex -> /srv/x", "/srv/x/"]);
    assert!(refusal(&linked, &workspace()).contains("/srv/w/.codex"));
    let hidden = machine().with("/srv/w/locked/x").blocked("/srv/w/locked");
    assert!(refusal(&hidden, &workspace().deny(uri("/srv/w/locked/x"))).contains("/srv/w/locked/x"));
    let elsewhere = machine().with("/root/x").blocked("/root");
    assert_access(&bind(&elsewhere, &workspace().deny(uri("/root/x"))), &[("/root/x", Some(Deny))]);
    let endless = FakePaths::new(&["/a -> b", "/b -> a"]);
    assert!(refusal(&endless, &SandboxIntent::read_only().deny(uri("/a/x"))).contains("too many"));
}

/// A command that may write a directory below a root can put a link to `/` in its place.
#[test]
fn nothing_hangs_on_an_exchangeable_link_to_the_root_directory() {
    let fake = machine().with("/srv/w/cache -> /").with("/srv/w/round -> ../../srv/..").with("/opt/all -> /");
    for intent in [
        workspace().write(uri("/srv/w/cache")),
        workspace().write(uri("/srv/w/round")),
        workspace().write_below_roots("cache"),
        workspace().workspace_root(uri("/srv/w/cache")),
        workspace().read(uri("/srv/w/cache")),
        SandboxIntent::minimal_write([uri("/srv/w")]).read(uri("/srv/w/cache")),
        workspace().deny(uri("/srv/w/cache")),
        // With all of it writable, this one could be exchanged for a link to less.
        SandboxIntent::read_only().write(uri("/opt/all")),
    ] {
        let reason = refusal(&fake, &intent);
        assert!(["/srv/w/cache", "/srv/w/round", "/opt/all"].iter().any(|link| reason.contains(link)), "{reason}");
    }
    // What is writable anyway is not writable by the link.
    let anyway = bind(&fake, &SandboxIntent::no_network().write(uri("/srv/w/cache")));
    assert_eq!((anyway.class, anyway.root), (Class::FullWrite, Some(Write)));
    // Where nobody can exchange it, it means what it says, and binding remembers that it hangs on it.
    let elsewhere = bind(&fake, &SandboxIntent::minimal_write([uri("/srv/w")]).read(uri("/opt/all")));
    assert_eq!((elsewhere.class, elsewhere.root), (Class::FullRead, Some(Read)));
    assert!(elsewhere.aliases.contains(&Alias { link: "/opt/all".into(), target: "/".into() }));
    assert!(elsewhere.entries.iter().all(|entry| entry.path.parent().is_some()));
}

#[test]
fn what_is_missing_is_passed_over_or_held() {
    let fake = machine();
    let skip = |access| Entry { skip_missing: true, ..Entry::path(uri("/srv/w/new"), access) };
    let held = |bound: &Bound| {
        let is_new = |name: &&ProtectedName| name.path == Path::new("/srv/w/new");
        bound.protected.iter().find(is_new).map(|name| {
            assert!(name.required);
            (name.access, name.state, name.placeholder)
        })
    };
    for (entry, access, expected) in [
        (Entry::path(uri("/srv/w/new"), Deny), Deny, Some(Deny)),
        (Entry::path(uri("/srv/w/new"), Read), Read, Some(Read)),
        (skip(Deny), Deny, Some(Deny)),
        (skip(Read), Write, None),
        (Entry::path(uri("/srv/w/new"), Write), Write, None),
    ] {
        let bound = bind(&fake, &workspace().entry(entry));
        assert_access(&bound, &[("/srv/w/new/x", Some(access))]);
        assert_eq!(held(&bound), expected.map(|access| (access, Existing::Missing, true)));
    }
    // Without a directory to be in, there is no name to hold.
    let deep = bind(&fake, &workspace().deny(uri("/srv/w/new/deep")));
    assert_access(&deep, &[("/srv/w/new/deep", Some(Deny)), ("/srv/w/new", Some(Write))]);
    assert_eq!(deep.protected.len(), 4);
    assert_eq!(bind(&fake, &workspace().deny(uri("/srv/new"))).protected.len(), 4);
    assert_access(&bind(&fake, &SandboxIntent::read_only().write(uri("/srv/new"))), &[("/srv/new", Some(Read))]);
}

#[test]
fn a_subpath_that_leaves_allows_nothing_and_denies_everything() {
    let fake = machine();
    for subpath in ["../out", "a/../../out", "/srv/out", ".."] {
        let bound = bind(&fake, &workspace().write_below_roots(subpath).read_below_roots(subpath));
        assert_access(&bound, &[("/srv/out", Some(Read))]);
        assert!(refusal(&fake, &workspace().deny_below_roots(subpath)).contains(subpath));
    }
    assert!(refusal(&fake, &workspace().read_below_roots("a\0")).contains("NUL"));
    assert_access(&bind(&fake, &workspace().deny_below_roots("src/../secret")), &[("/srv/w/secret", Some(Deny))]);
}

#[test]
fn a_directory_for_temporary_files_is_the_executors_or_a_fitting_one() {
    let fake = machine();
    let tmpdir = SandboxIntent::read_only().workspace_root(uri("/srv/w")).entry(Entry::special(Special::Tmpdir, Write));
    assert_access(&bind(&fake, &tmpdir), &[("/tmp/mine", Some(Write)), ("/tmp", Some(Read))]);
    for (listed, accepted) in [
        ("/srv/out", true),
        ("/tmp/mine", true),
        ("/tmp/theirs", false),
        ("/srv/none", false),
        ("/srv/out/x", false),
        ("/srv", false),
        ("/", false),
        ("/srv/w", true),
    ] {
        let bound = bind(&fake, &tmpdir.clone().temporary_directory(uri(listed)));
        assert_eq!(bound.can_write(Path::new(listed)), accepted, "{listed}");
        assert_eq!(bound.can_write(Path::new("/tmp/mine")), listed == "/tmp/mine");
    }
    let denied = SandboxIntent::read_only().entry(Entry::special(Special::Tmpdir, Deny));
    let denied = bind(&fake, &denied.temporary_directory(uri("/tmp/theirs")));
    assert_access(&denied, &[("/tmp/mine", Some(Deny)), ("/tmp/theirs", Some(Deny)), ("/tmp", Some(Read))]);
}

#[test]
fn tokens_from_the_future_allow_nothing_and_cannot_be_denied() {
    let fake = machine();
    let unknown = |access| Entry::special(Special::Unknown { path: ":new".into(), subpath: None }, access);
    for access in [Read, Write] {
        assert_eq!(bind(&fake, &workspace().entry(unknown(access))), bind(&fake, &workspace()));
    }
    assert!(refusal(&fake, &workspace().entry(unknown(Deny))).contains(":new"));
}

#[test]
fn patterns_are_bound_to_where_they_begin() {
    let fake = machine();
    let intent = workspace().cwd(uri("/srv/w")).user_home_dir(uri("/srv/out"));
    for (pattern, denied, allowed) in [
        ("**/*.pem", "/srv/w/a/b.pem", "/srv/out/b.pem"),
        ("src/*.pem", "/srv/w/src/b.pem", "/srv/w/b.pem"),
        ("../out/*.pem", "/srv/out/b.pem", "/srv/w/b.pem"),
        ("~/*.pem", "/srv/out/b.pem", "/srv/w/b.pem"),
        ("/srv/*/b.pem", "/srv/w/b.pem", "/srv/b.pem"),
        ("codex-project-roots://*.pem", "/srv/w/b.pem", "/srv/out/b.pem"),
        ("/srv/alias/*.pem", "/srv/w/b.pem", "/srv/out/b.pem"),
        ("/srv/{w,out}/b.*", "/srv/out/b.pem", "/srv/b.pem"),
        ("\\[x\\]/*.pem", "/srv/w/[x]/b.pem", "/srv/w/x/b.pem"),
        ("codex-project-roots://{,src}/*.pem", "/srv/w/b.pem", "/srv/out/b.pem"),
    ] {
        let bound = bind(&fake, &intent.clone().deny_glob(pattern));
        assert_eq!(bound.access(Path::new(denied)), Some(Deny), "{pattern}");
        assert!(bound.access(Path::new(allowed)) > Some(Deny), "{pattern}");
        assert!(bound.globs.iter().all(|glob| glob.text == pattern));
    }
    for pattern in [
        "/**/*.pem",
        "/*",
        "a**b",
        "[",
        "src",
        "../../../*",
        "{/srv/out/*,x}",
        "{~/x,y}*",
        "~{/x,y}*",
        "{c:/x,y}*",
        "C:/x/*",
        "c:\\*",
    ] {
        assert!(refusal(&fake, &intent.clone().deny_glob(pattern)).contains(pattern), "{pattern}");
    }
    assert!(refusal(&fake, &workspace().deny_glob("~/*")).contains("userHomeDir"));
    let relative = try_bind(&fake, &workspace().deny_glob("*"));
    assert!(matches!(relative, Err(SandboxError::Invalid { .. })), "{relative:?}");
    for access in [Read, Write] {
        let glob = Entry::new(EntryPath::Glob { pattern: "*".into() }, access);
        assert!(refusal(&fake, &intent.clone().entry(glob)).contains("only denied"));
    }
}

#[test]
fn what_this_system_does_not_have_is_unavailable() {
    let fake = machine();
    let mxc = SandboxIntent::disabled().windows_level(WindowsSandboxLevel::Mxc);
    assert!(matches!(try_bind(&fake, &mxc), Err(SandboxError::Unavailable { .. })));
    let mut legacy = SandboxIntent::no_network();
    legacy.use_legacy_landlock = true;
    bind(&fake, &legacy);
    let legacy = legacy.read(uri("/srv"));
    assert!(matches!(try_bind(&fake, &legacy), Err(SandboxError::Unavailable { .. })));
}

#[cfg(unix)]
#[test]
fn paths_that_mean_nothing_here_are_named() {
    let fake = machine();
    for text in ["file:///srv/a%2Fb", "file:///C:/x", "file://host/share/x", "file:///%00/bad/path/L2EAYg"] {
        let path = PathUri::parse(text).unwrap();
        for intent in [
            SandboxIntent::read_only().read(path.clone()),
            SandboxIntent::workspace_write([path.clone()]),
            SandboxIntent::read_only().cwd(path.clone()),
        ] {
            assert!(refusal(&fake, &intent).contains(text), "{text}");
        }
    }
    // Bytes that are no text are a name like any other.
    use std::os::unix::ffi::OsStrExt;
    let bound = bind(&fake, &SandboxIntent::read_only().deny(PathUri::parse("file:///srv/%FF").unwrap()));
    assert_eq!(bound.access(Path::new(std::ffi::OsStr::from_bytes(b"/srv/\xff"))), Some(Deny));
}

#[test]
fn every_order_of_a_deny_within_what_is_allowed_denies() {
    let fake = machine().with("/srv/w/a/s");
    let entries = [
        Entry::special(Special::Root, Read),
        Entry::path(uri("/srv/w"), Write),
        Entry::path(uri("/srv/w/a/s"), Deny),
        Entry::path(uri("/srv/w/a"), Read),
    ];
    let mut bounds = Vec::new();
    for order in permutations(4) {
        let ordered = order.iter().map(|at| entries[*at].clone()).collect();
        let file_system = FileSystemPolicy::Restricted { entries: ordered, glob_scan_max_depth: None };
        let network = NetworkPolicy::Restricted;
        bounds.push(bind(&fake, &SandboxIntent::new(PermissionProfile::Managed { file_system, network })));
    }
    assert_eq!(bounds.len(), 24);
    assert!(bounds.iter().all(|bound| *bound == bounds[0]));
    assert_access(&bounds[0], &[("/srv/w/a/s", Some(Deny)), ("/srv/w/a/t", Some(Read)), ("/srv/w/b", Some(Write))]);
    assert_eq!(bounds[0].masks().count(), 1);
}

fn permutations(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let smaller = permutations(count - 1);
    let places = smaller.iter().flat_map(|order| (0..count).map(move |at| (order, at)));
    places
        .map(|(order, at)| {
            let mut order = order.clone();
            order.insert(at, count - 1);
            order
        })
        .collect()
}

#[cfg(unix)]
#[test]
fn the_hosts_own_file_system_is_read_the_same_way() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().canonicalize().unwrap();
    std::fs::create_dir_all(home.join("w/.git")).unwrap();
    std::fs::write(home.join("w/a.pem"), "").unwrap();
    std::os::unix::fs::symlink("w", home.join("alias")).unwrap();
    let root = PathUri::from_host_native_path(home.join("alias")).unwrap();
    let settings = SandboxSettings::default();
    let facts = Facts::host(&settings, Path::new("relative"));
    assert_eq!(facts.temp_dir, None);
    let intent = SandboxIntent::minimal_write([root]).deny_glob("codex-project-roots://**/*.pem");
    let mut bound = intent.bind(&facts).unwrap();
    assert!(bound.can_write(&home.join("w/x")) && !bound.can_write(&home.join("w/.git/x")));
    bound.expand_globs(&HostPaths).unwrap();
    assert_eq!(
        bound.entry(&home.join("w/a.pem")).map(|entry| (entry.access, entry.kind)),
        Some((Deny, Existing::File))
    );
    assert!(bound.can_read(Path::new("/usr/bin")));
    assert_eq!(HostPaths.read_start(&home.join("w/a.pem"), 5).unwrap(), b"");
    // What is no file is waited for by nobody.
    assert!(std::process::Command::new("mkfifo").arg(home.join("fifo")).status().unwrap().success());
    for other in ["fifo", "alias", "w", "none"] {
        let error = HostPaths.read_start(&home.join(other), 5).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{other}: {error}");
    }
}
