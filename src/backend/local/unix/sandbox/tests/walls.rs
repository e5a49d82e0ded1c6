//! What may be read and written, and what is out of reach.

use super::*;
use crate::backend::local::unix::sandbox::plan::is_made_anew;

/// The words of `words` that a script has printed, each after something that it managed to do.
fn managed<'a>(output: &str, words: &[&'a str]) -> Vec<&'a str> {
    words.iter().copied().filter(|word| output.lines().any(|line| line == *word)).collect()
}

#[tokio::test]
async fn a_read_only_tree_is_read_only_to_its_last_attribute() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    let script = "echo x > file && echo wrote; echo x > new && echo made; chmod 700 file && echo mode; \
                  touch -d @0 file && echo time; mv file moved && echo moved; rm file && echo removed; \
                  ln file link && echo linked; truncate -s 0 file && echo cut; echo > /tmp/longarm-sandbox && echo tmp; \
                  echo 1 > /proc/sys/vm/drop_caches && echo sys; mkdir /dev/x && echo dev; \
                  cat file && echo null > /dev/null && head -c 1 /dev/urandom > /dev/null && \
                  echo shm > /dev/shm/x && echo works";
    for kernel in kernels_with_mounts() {
        let (status, output) = run(&kernel, &read_only(), &root, script).await;
        let words =
            ["wrote", "made", "mode", "time", "moved", "removed", "linked", "cut", "tmp", "sys", "dev", "works"];
        assert_eq!(managed(&output, &words), ["works"], "{kernel:?}: {output}");
        assert!(status.success());
        assert!(output.contains("Read-only file system"), "what a mount says: {output}");
        assert_eq!(std::fs::read_to_string(workspace.path("w/file")).unwrap(), "text\n");
    }
}

#[tokio::test]
async fn roots_are_writable_and_what_is_taken_back_within_them_is_not() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    let entries = [
        (root.clone(), Access::Write),
        (workspace.path("w/.git"), Access::Read),
        (workspace.path("w/secret"), Access::Deny),
        (workspace.path("w/secret/open"), Access::Write),
        (workspace.path("w/deep/er/s"), Access::Deny),
        (workspace.path("w/missing"), Access::Deny),
    ];
    let bound = bound(Some(Access::Read), NetworkPolicy::Restricted, &entries);
    let outside = workspace.path("outside");
    let script = format!(
        "echo x > new && mv new new2 && rm new2 && mkdir sub && rmdir sub && echo root; \
         echo x > .git/config && echo config; mv .git moved && echo moved; cat .git/config && echo read; \
         ls secret && echo listed; cat secret/f && echo secret; chmod 755 secret && echo opened; \
         echo x > secret/open/f && cat secret/open/f && rm secret/open/f && echo reopened; \
         cat deep/er/s && echo denied; cat ../w/deep/er/s && echo dots; cat /proc/self/cwd/deep/er/s && echo proc; \
         mv deep shallow && echo parent; rm deep/er/s && echo unlinked; stat -c %s deep/er/s; \
         echo x > {0}/f && echo outside; ln {0}/f hard && echo linked; ln -s {0} soft && echo x > soft/f && echo through; \
         rm soft && echo link; rmdir ../w && echo gone; mv ../w ../v && echo renamed",
        outside.display()
    );
    let words = [
        "root", "config", "moved", "read", "listed", "secret", "opened", "reopened", "denied", "dots", "proc",
        "parent", "unlinked", "outside", "linked", "through", "link", "gone", "renamed",
    ];
    for kernel in kernels_with_mounts() {
        let (_, output) = run(&kernel, &bound, &root, &script).await;
        assert_eq!(managed(&output, &words), ["root", "read", "reopened", "link"], "{kernel:?}: {output}");
        assert!(output.lines().any(|line| line == "0"), "the metadata is that of the mask: {output}");
        assert_eq!(std::fs::read_to_string(workspace.path("outside/f")).unwrap(), "text\n");
        assert_eq!(std::fs::read_to_string(workspace.path("w/.git/config")).unwrap(), "text\n");
        assert_eq!(std::fs::read_to_string(workspace.path("w/deep/er/s")).unwrap(), "text\n");
        assert!(!workspace.path("w/missing").exists(), "nothing is made outside");
    }
}

#[tokio::test]
async fn each_level_of_nested_entries_has_its_own_access() {
    let workspace = Workspace::new();
    std::fs::create_dir_all(workspace.path("w/a/b/c/d")).unwrap();
    std::fs::write(workspace.path("w/a/b/c/d/f"), "text\n").unwrap();
    let entries = [
        (workspace.path("w/a"), Access::Read),
        (workspace.path("w/a/b"), Access::Deny),
        (workspace.path("w/a/b/c"), Access::Write),
        (workspace.path("w/a/b/c/d"), Access::Read),
        (workspace.path("w"), Access::Write),
    ];
    let bound = bound(Some(Access::Read), NetworkPolicy::Enabled, &entries);
    let script = "touch x && rm x && echo w; ls a > /dev/null && echo ls-a; touch a/x && echo a; ls a/b && echo ls-b; \
                  touch a/b/x && echo b; touch a/b/c/x && rm a/b/c/x && echo c; cat a/b/c/d/f && echo cat-d; \
                  touch a/b/c/d/x && echo d; mv a/b/c a/b/x && echo mv-c";
    for kernel in kernels_with_mounts() {
        let (_, output) = run(&kernel, &bound, &workspace.path("w"), script).await;
        let words = ["w", "ls-a", "a", "ls-b", "b", "c", "cat-d", "d", "mv-c"];
        assert_eq!(managed(&output, &words), ["w", "ls-a", "c", "cat-d"], "{kernel:?}: {output}");
    }
}

#[tokio::test]
async fn a_file_can_be_writable_alone_and_a_whole_machine_but_for_something() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    let file = bound(Some(Access::Read), NetworkPolicy::Restricted, &[(workspace.path("w/file"), Access::Write)]);
    let everything = [(workspace.path("w/.git"), Access::Read), (workspace.path("w/secret"), Access::Deny)];
    let everything = bound(Some(Access::Write), NetworkPolicy::Restricted, &everything);
    for kernel in kernels_with_mounts() {
        let (_, output) =
            run(&kernel, &file, &root, "echo text > file && echo file; echo x > other && echo other").await;
        assert_eq!(managed(&output, &["file", "other"]), ["file"], "{kernel:?}: {output}");
        let script = "echo x > ../outside/n && rm ../outside/n && echo outside; echo x > .git/config && echo config; \
                      ls secret && echo secret; mv ../w ../v && echo moved";
        let (_, output) = run(&kernel, &everything, &root, script).await;
        assert_eq!(managed(&output, &["outside", "config", "secret", "moved"]), ["outside"], "{kernel:?}: {output}");
    }
}

#[tokio::test]
async fn what_is_not_visible_does_not_exist() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    let mut entries = vec![(root.clone(), Access::Write), (workspace.path("w/secret"), Access::Deny)];
    let mut aliases = Vec::new();
    for name in ["/bin", "/lib", "/lib64", "/usr", "/etc"] {
        match std::fs::read_link(name) {
            Ok(target) => aliases.push(crate::sandbox::Alias { link: name.into(), target }),
            Err(_) if Path::new(name).exists() => entries.push((name.into(), Access::Read)),
            Err(_) => {}
        }
    }
    let mut bound = Arc::unwrap_or_clone(bound(None, NetworkPolicy::Restricted, &entries));
    bound.aliases = aliases;
    let bound = Arc::new(bound);
    let script = format!(
        "cat /usr/bin/env > /dev/null && echo usr; cat {0}/f && echo outside; stat {0} && echo stat; echo x > /x && echo x; \
         echo x > /usr/x && echo usr-x; echo x > new && rm new && echo root; ls secret && echo secret; \
         echo x > ../x && echo above; echo x > /dev/shm/x && echo shm; ls -d /root && echo home; ls /",
        workspace.path("outside").display()
    );
    for kernel in kernels_with_mounts() {
        let (status, output) = run(&kernel, &bound, &root, &script).await;
        let words = ["usr", "outside", "stat", "x", "usr-x", "root", "secret", "above", "shm", "home"];
        assert_eq!(managed(&output, &words), ["usr", "root", "shm"], "{kernel:?}: {output}");
        assert!(status.success(), "the root can be listed: {output}");
        assert!(output.contains("No such file or directory"), "{output}");
    }
}

#[tokio::test]
async fn either_wall_alone_keeps_writes_in_the_roots() {
    let workspace = Workspace::new();
    let root = workspace.path("w");
    let bound = bound(Some(Access::Read), NetworkPolicy::Restricted, &[(root.clone(), Access::Write)]);
    let best = probe::kernel().unwrap();
    if best.mode == Mode::Bare || best.landlock.is_none_or(|version| version < 3) {
        return;
    }
    let script = "echo x > new && rm new && echo root; echo x > ../outside/n && echo made; echo x > ../outside/f && echo wrote; \
                  truncate -s 0 ../outside/f && echo cut; rm ../outside/f && echo removed; ln ../outside/f hard && echo linked; \
                  echo > /tmp/longarm-sandbox && echo tmp; ln -s ../outside soft; echo x > soft/f && echo through; rm soft";
    let words = ["root", "made", "wrote", "cut", "removed", "linked", "tmp", "through"];
    for without in [Walls { mounts: true, ..Walls::default() }, Walls { landlock: true, ..Walls::default() }] {
        let script = format!("exec 2>&1; {script}");
        let plan = launch_plan(&script, &root, prepared(best, &bound, without));
        let (_, output) = Running::start(plan).await.unwrap().end().await;
        assert_eq!(managed(&output, &words), ["root"], "{without:?}: {output}");
    }
}

#[tokio::test]
async fn no_right_is_left_and_none_can_be_had() {
    let script = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t\\n '; echo; \
                  grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs)' /proc/1/status | tr -d '\\t\\n '; echo; \
                  unshare -Ur true && echo user; mount -t tmpfs none /mnt && echo mount; mknod /dev/shm/n b 1 1 && echo node";
    for kernel in kernels_with_mounts().into_iter().filter(|kernel| kernel.fresh_proc) {
        let (_, output) = run(&kernel, &read_only(), Path::new("/tmp"), script).await;
        let none = "0000000000000000";
        let expected =
            format!("CapInh:{none}CapPrm:{none}CapEff:{none}CapBnd:{none}CapAmb:{none}NoNewPrivs:1Seccomp:2");
        let of_the_first = format!("CapInh:{none}CapPrm:{none}CapEff:{none}CapAmb:{none}NoNewPrivs:1");
        assert!(output.starts_with(&format!("{expected}\n{of_the_first}\n")), "{kernel:?}: {output}");
        assert!(managed(&output, &["user", "mount", "node"]).is_empty(), "{output}");
    }
}

/// Neither the rights of a file nor a device is had from the host, whatever may be written.
#[tokio::test]
async fn what_is_mounted_of_the_host_gives_no_rights_and_no_devices() {
    for kernel in kernels_with_mounts().into_iter().filter(|kernel| kernel.fresh_proc) {
        let workspace = Workspace::new();
        let entry = |access| [(workspace.path("w"), access)];
        let bounds = [
            read_only(),
            bound(Some(Access::Read), NetworkPolicy::Restricted, &entry(Access::Write)),
            bound(Some(Access::Write), NetworkPolicy::Restricted, &entry(Access::Read)),
        ];
        for bound in bounds {
            let (_, output) = run(&kernel, &bound, Path::new("/tmp"), "cat /proc/self/mountinfo").await;
            let mounts = output.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let mounts: Vec<_> = mounts.filter(|mount| !is_made_anew(Path::new(mount[4]))).collect();
            assert!(mounts.iter().any(|mount| mount[4] == "/"), "{output}");
            let has = |mount: &[&str], option| mount[5].split(',').any(|other| other == option);
            let forbids = |mount: &Vec<&str>| has(mount, "nosuid") && has(mount, "nodev");
            assert!(mounts.iter().all(forbids), "{bound:?} {kernel:?}: {output}");
        }
    }
}

/// A listener of the executor, and what becomes of connections to its port and to another one.
#[tokio::test]
async fn only_the_given_loopback_ports_answer() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Some(bash) = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|path| Path::new(path).exists()) else { return };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let other = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = [0; 4];
            stream.read_exact(&mut question).await.unwrap();
            stream.write_all(b"answer\n").await.unwrap();
        }
    });
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'ask\\n' >&3 && head -n 1 <&3; \
         (exec 4<>/dev/tcp/127.0.0.1/{}) && echo reached",
        other.local_addr().unwrap().port()
    );
    let managed = ManagedNetworkFacts::ports([port]);
    for kernel in kernels_with_mounts() {
        let sandbox = prepared_on(&kernel, &read_only(), &settings(), Some(&managed), Walls::default());
        if !kernel.network {
            assert!(matches!(sandbox, Err(SandboxError::Unavailable { .. })), "there is no place to listen in");
            continue;
        }
        let request = ExecRequest::new([bash, "-c", &format!("exec 2>&1; {script}")]).cwd("/tmp");
        let mut plan = LaunchPlan::new(&request, &config()).unwrap();
        plan.sandbox = Some(sandbox.unwrap());
        let (_, output) = Running::start(plan).await.unwrap().end().await;
        assert!(output.starts_with("answer\n"), "{kernel:?}: {output}");
        assert!(!output.contains("reached") && output.contains("refused"), "{output}");
    }
    answering.abort();
}

/// Tells a command what to try to reach: a port and the name of an abstract socket.
const TARGETS: &str = "LONGARM_SANDBOX_TEST";

/// What a command does that a test starts; otherwise nothing.
#[test]
fn command_that_tries_to_connect() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    let Ok(targets) = std::env::var(TARGETS) else { return };
    let (port, name) = targets.split_once(' ').unwrap();
    let tcp = std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap()));
    println!("\ntcp {}", tcp.is_ok());
    let abstract_socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap());
    println!("\nabstract {}", abstract_socket.is_ok());
}

#[tokio::test]
async fn either_wall_alone_keeps_the_host_s_sockets_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let best = probe::kernel().unwrap();
    if best.mode == Mode::Bare || !best.network {
        return;
    }
    let tcp = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = tcp.local_addr().unwrap().port();
    let name = format!("longarm-{}", uuid::Uuid::new_v4().simple());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let program = std::env::current_exe().unwrap();
    let module = module_path!().split_once("::").unwrap().1;
    let script = format!(
        "exec 2>&1; {TARGETS}='{port} {name}' exec '{}' --exact {module}::command_that_tries_to_connect --nocapture",
        program.display()
    );
    let cwd = Path::new("/");
    let words = ["tcp true", "tcp false", "abstract true", "abstract false"];
    let open = bound(Some(Access::Write), NetworkPolicy::Enabled, &[]);
    let none = Walls { mounts: true, landlock: true, network: true, sockets: true };
    for (bound, without, expected) in [
        // What the others would be if there was no wall.
        (&open, none, "tcp true, abstract true"),
        (&read_only(), Walls { network: true, ..Walls::default() }, "tcp false, abstract false"),
        (&read_only(), Walls { sockets: true, ..Walls::default() }, "tcp false, abstract false"),
    ] {
        let plan = launch_plan(&script, cwd, prepared(best, bound, without));
        let (_, output) = Running::start(plan).await.unwrap().end().await;
        assert_eq!(managed(&output, &words).join(", "), expected, "{without:?}: {output}");
    }
}
