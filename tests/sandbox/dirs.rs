//! What a row finds on the host: directories inside and outside of the sandbox, and listeners.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// All of one row. Everything ends with it.
pub(crate) struct Dirs {
    /// The workspace.
    pub(crate) w: PathBuf,
    /// Outside of every root.
    pub(crate) o: PathBuf,
    /// In the workspace, and denied by some.
    pub(crate) s: PathBuf,
    /// Another workspace.
    pub(crate) x: PathBuf,
    /// The executor's temporary directory.
    pub(crate) t: PathBuf,
    pub(crate) base: PathBuf,
    port: u16,
    udp_port: u16,
    abstract_name: String,
    listeners: Listeners,
    _base: tempfile::TempDir,
}

struct Listeners {
    tcp: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
    datagrams: UnixDatagram,
    abstract_name: UnixListener,
    abstract_datagrams: UnixDatagram,
}

impl Dirs {
    /// Makes them, as the property of a user, and runs a shell script in them that sets them up further.
    pub(crate) fn make(owner: u32, setup: &str) -> Self {
        // What is below /tmp is writable by some policies; and a name with the word that classifies would count as a denial.
        let base = tempfile::Builder::new().prefix("longarm-rows-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = base.path().canonicalize().unwrap();
        let [w, o, x, t] = ["w", "o", "x", "t"].map(|name| path.join(name));
        let s = w.join("secret");
        for dir in [&w, &o, &x, &t, &s, &w.join(".git"), &w.join("sub")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        for (file, text) in [
            (w.join(".git/config"), "[core]\n"),
            (s.join("f"), "secret"),
            (o.join("f"), "outside"),
            (w.join("f"), "inside"),
        ] {
            std::fs::write(file, text).unwrap();
        }
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let [streams, datagrams] =
            ["", "-d"].map(|suffix| SocketAddr::from_abstract_name(format!("{name}{suffix}")).unwrap());
        let dirs = Self {
            port: tcp.local_addr().unwrap().port(),
            udp_port: udp.local_addr().unwrap().port(),
            abstract_name: name,
            listeners: Listeners {
                tcp,
                udp,
                unix: UnixListener::bind(o.join("sock")).unwrap(),
                datagrams: UnixDatagram::bind(o.join("dgram")).unwrap(),
                abstract_name: UnixListener::bind_addr(&streams).unwrap(),
                abstract_datagrams: UnixDatagram::bind_addr(&datagrams).unwrap(),
            },
            w,
            o,
            s,
            x,
            t,
            base: path,
            _base: base,
        };
        dirs.host("setup", setup).unwrap_or_else(|error| panic!("{error}"));
        if owner != own_uid() {
            let owner = format!("{owner}:{owner}");
            let status = Command::new("chown").args(["-hR", &owner]).arg(&dirs.base).status().unwrap();
            assert!(status.success(), "chown: {status}");
        }
        dirs
    }

    /// What scripts find in their environment.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
        vec![
            ("W", text(&self.w)),
            ("O", text(&self.o)),
            ("S", text(&self.s)),
            ("X", text(&self.x)),
            ("T", text(&self.t)),
            ("BASE", text(&self.base)),
            ("PORT", self.port.to_string()),
            ("UDP", self.udp_port.to_string()),
            ("ABSTRACT", format!("@{}", self.abstract_name)),
            ("PROBE", format!("{} {}", helper_program().display(), crate::helper::FLAG)),
            // Without directories that an ordinary user may not look into.
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME", text(&self.t)),
            ("LC_ALL", "C".into()),
        ]
    }

    /// Where an executor keeps its state that does so in the workspace.
    pub(crate) fn state(&self) -> PathBuf {
        self.w.join("state")
    }

    /// The port of a listener of the host.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Which of the host's sockets somebody has reached. To be asked when nobody is left who could.
    pub(crate) fn reached(&self) -> Vec<&'static str> {
        let Listeners { tcp, udp, unix, datagrams, abstract_name, abstract_datagrams } = &self.listeners;
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        abstract_name.set_nonblocking(true).unwrap();
        abstract_datagrams.set_nonblocking(true).unwrap();
        let byte = &mut [0];
        let reached = [
            ("tcp", tcp.accept().is_ok()),
            ("udp", udp.recv(byte).is_ok()),
            ("socket file", unix.accept().is_ok()),
            ("datagram file", datagrams.recv(byte).is_ok()),
            ("abstract name", abstract_name.accept().is_ok()),
            ("abstract datagram name", abstract_datagrams.recv(byte).is_ok()),
        ];
        reached.into_iter().filter(|(_, reached)| *reached).map(|(name, _)| name).collect()
    }

    /// Runs a shell script outside of the sandbox.
    pub(crate) fn host(&self, what: &str, script: &str) -> Result<(), String> {
        let output = Command::new("sh")
            .args(["-ec", script])
            .current_dir(&self.base)
            .env_clear()
            .envs(self.variables())
            .output()
            .map_err(|error| format!("{what}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        Err(format!("{what}: `{script}` ends with {}: {}", output.status, String::from_utf8_lossy(&text)))
    }
}

/// Where this program is for every user and every policy of full reading: its copy, which goes when this is dropped.
pub(crate) struct Helper(tempfile::TempDir);

static HELPER: OnceLock<PathBuf> = OnceLock::new();

impl Helper {
    /// To be called once.
    pub(crate) fn install() -> Self {
        let dir = tempfile::Builder::new().prefix("longarm-helper-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = dir.path().join("helper");
        std::fs::copy("/proc/self/exe", &program).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        HELPER.set(program).unwrap();
        Self(dir)
    }

    /// Removes it.
    pub(crate) fn remove(self) {
        self.0.close().unwrap();
    }
}

fn helper_program() -> &'static PathBuf {
    HELPER.get().unwrap()
}

pub(crate) fn own_uid() -> u32 {
    // SAFETY: the call takes and touches nothing.
    unsafe { libc::geteuid() }
}
