//! Sockets of all kinds.

use super::{EPERM, script};
use crate::place::Settings;
use crate::policy::{ext, full, ro, unr, ww, wwn};
use crate::row::Expect::{Denied, Fails, Works};
use crate::row::Row;

const REFUSED: &[&str] = &[EPERM];

pub(super) fn rows() -> Vec<Row> {
    let loopback = Settings { private_loopback: true, ..Settings::default() };
    vec![
        script(70, "a public address", ro, "$PROBE tcp 192.0.2.1:80", Denied(REFUSED)).unreached(),
        script(71, "a loopback server of the host", ro, "$PROBE tcp 127.0.0.1:$PORT", Denied(REFUSED)).unreached(),
        script(72, "a datagram", ro, "$PROBE udp 127.0.0.1:$UDP", Denied(REFUSED)).unreached(),
        script(72, "a raw socket", ro, "$PROBE socket 2 3 1", Denied(REFUSED)).unreached(),
        script(72, "a netlink socket", ro, "$PROBE socket 16 3 0", Denied(REFUSED)).unreached(),
        script(72, "a packet socket", ro, "$PROBE socket 17 3 0", Denied(REFUSED)).unreached(),
        script(72, "a vsock socket", ro, "$PROBE socket 40 1 0", Denied(REFUSED)).unreached(),
        script(73, "a socket file of the host", ro, "$PROBE unix $O/sock", Denied(REFUSED)).unreached(),
        script(74, "a datagram socket", ro, "$PROBE socket 1 2 0", Denied(REFUSED)).unreached(),
        script(
            74,
            "a datagram, by every socket and every call",
            ro,
            "$PROBE datagrams $O/dgram $ABSTRACT-d",
            Fails(&["os error"]),
        )
        .unreached(),
        script(74, "a raw local socket", ro, "$PROBE socket 1 3 0", Denied(REFUSED)),
        script(74, "a pair of them", ro, "$PROBE datagram-pair", Denied(REFUSED)).unreached(),
        script(75, "an abstract name of the host", ro, "$PROBE abstract $ABSTRACT", Fails(&["os error"])).unreached(),
        script(76, "a pair of stream sockets", ro, "$PROBE pair", Works),
        script(
            76,
            "a program that talks over one",
            ro,
            "node -e 'const r=require(\"child_process\").spawnSync(\"true\");process.exit(r.status)'",
            Works,
        )
        .tool("node"),
        script(77, "io_uring", ro, "$PROBE io_uring", Denied(REFUSED)).unreached(),
        script(78, "a loopback server of the host, with the network", wwn, "$PROBE tcp 127.0.0.1:$PORT", Works),
        script(78, "a datagram, with the network", wwn, "$PROBE udp 127.0.0.1:$UDP", Works),
        script(78, "a local datagram, with the network", wwn, "$PROBE datagrams $O/dgram $ABSTRACT-d", Works),
        script(79, "io_uring, with the network", wwn, "$PROBE io_uring", Denied(REFUSED)),
        script(79, "a vsock socket, with the network", wwn, "$PROBE socket 40 1 0", Denied(REFUSED)),
        script(70, "S07, a loopback server of its own, at once", ro, "$PROBE at-once loopback", Denied(REFUSED)),
        script(80, "S07, a private loopback server", ww, "$PROBE at-once loopback", Works).settings(loopback),
        script(80, "S07, a private loopback server, read only", ro, "$PROBE at-once loopback", Works)
            .settings(loopback),
        script(
            80,
            "S07, the host's loopback server, from there",
            ww,
            "$PROBE tcp 127.0.0.1:$PORT",
            Fails(&["refused"]),
        )
        .settings(loopback)
        .unreached(),
        script(80, "a public address, from there", ww, "$PROBE tcp 192.0.2.1:80", Fails(&["unreachable"]))
            .settings(loopback),
        script(
            85,
            "the network is all that is restricted: managed",
            unr,
            "$PROBE tcp 127.0.0.1:$PORT",
            Denied(REFUSED),
        )
        .unreached(),
        script(
            85,
            "the network is all that is restricted: external",
            ext,
            "$PROBE tcp 127.0.0.1:$PORT",
            Denied(REFUSED),
        )
        .unreached(),
        script(85, "the network is all that is restricted: entry", full, "$PROBE tcp 127.0.0.1:$PORT", Denied(REFUSED))
            .unreached(),
        script(86, "nothing is: entry", |dirs| full(dirs).enabled(), "$PROBE tcp 127.0.0.1:$PORT", Works),
        script(86, "nothing is: managed", |dirs| unr(dirs).enabled(), "$PROBE tcp 127.0.0.1:$PORT", Works),
        script(86, "nothing is: external", |dirs| ext(dirs).enabled(), "$PROBE tcp 127.0.0.1:$PORT", Works),
    ]
}
