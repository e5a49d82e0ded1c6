//! Entries in every order: it means nothing.

use longarm::fs::{FsError, ReadOptions};

use super::EACCES;
use super::tools::{Outcome, ensure};
use crate::dirs::Dirs;
use crate::policy::ro;
use crate::row::{Row, Stage};

pub(super) fn rows() -> Vec<Row> {
    let orders = orders();
    assert_eq!(orders.len(), 24);
    let row = |(index, order): (usize, [usize; 4])| {
        let policy = move |dirs: &Dirs| {
            let a = dirs.w.join("a");
            ro(dirs).path(&dirs.w, "write").path(a.join("s"), "deny").path(&a, "read").in_order(&order)
        };
        custom!(55, format!("S13, order {index} of the entries"), policy, denied_by_every_name)
            .setup("mkdir $W/a; echo x >$W/a/s; ln -s a $W/link; ln -s a/s $W/direct; ln -s $W/a $O/outside")
    };
    orders.into_iter().enumerate().map(row).collect()
}

/// By its path, by way of the parent, by links to it, to its directory, and from outside; and from within.
const NAMES: [&str; 6] = ["a/s", "a/../a/s", "direct", "link/s", "link/../a/./s", "../o/outside/s"];

async fn denied_by_every_name(stage: &Stage<'_>) -> Outcome {
    let mut scripts: Vec<String> = NAMES.iter().map(|name| format!("cat $W/{name}")).collect();
    scripts.extend(NAMES.iter().map(|name| format!("cd $W; cat {name}")));
    scripts.extend(
        ["cd $W/a; cat /proc/self/cwd/s", "cd $W; cat /proc/self/cwd/link/s", "cd $W/link; cat s"].map(String::from),
    );
    // One process for all: each must say so for itself.
    let all = scripts.iter().map(|script| format!("({script})")).collect::<Vec<_>>().join("; ");
    let ran = stage.run(stage.sh(&all)).await.map_err(|refused| format!("{refused:?}"))?;
    let denied = ran.text().lines().filter(|line| line.ends_with(EACCES)).count();
    ensure(denied == scripts.len() && ran.text().lines().count() == denied, || format!("{ran:?}"))?;
    ensure(ran.output.sandbox_denied, || format!("{ran:?}"))?;
    // What is around it is as its own entry says.
    stage.must("echo x >$W/new; ls $W/a >/dev/null; ! { echo x >$W/a/new; } 2>/dev/null").await?;

    let files = stage.files().map_err(|error| error.to_string())?;
    let own = format!("/proc/self/root{}/a/s", stage.dirs.w.display());
    for path in NAMES.iter().map(|name| stage.dirs.w.join(name)).chain([own.into()]) {
        match files.read(path.clone().into(), ReadOptions::new()).await {
            Err(FsError::PermissionDenied { .. }) => {}
            other => return Err(format!("{}: {other:?}", path.display())),
        }
    }
    Ok(())
}

/// All orders of four.
fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for number in 0..256_usize {
        let order = [number & 3, number >> 2 & 3, number >> 4 & 3, number >> 6 & 3];
        if (0..4).all(|index| order.contains(&index)) {
            orders.push(order);
        }
    }
    orders
}
