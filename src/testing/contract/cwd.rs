//! The working directory.

use super::context::{Context, Watched};
use crate::path_uri::PathUri;
use crate::request::Stdin;

cases! {"cwd":
    a_process_starts_in_its_directory,
    a_directory_can_be_given_as_a_uri,
    a_relative_program_is_relative_to_the_directory,
    names_of_directories_may_be_strange,
    a_process_outlives_its_directory,
    a_directory_that_is_gone_starts_nothing_and_hinders_nothing,
}

async fn a_process_starts_in_its_directory(cx: Context) {
    let output = cx.output(cx.child(&["cwd"])).await;
    assert_eq!(output.stdout.to_text().trim_end(), cx.dir().to_string_lossy());
}

async fn a_directory_can_be_given_as_a_uri(cx: Context) {
    let uri = PathUri::from_host_native_path(cx.dir()).unwrap();
    let output = cx.output(cx.child(&["cwd"]).cwd(uri)).await;
    assert_eq!(output.stdout.to_text().trim_end(), cx.dir().to_string_lossy());
}

async fn a_relative_program_is_relative_to_the_directory(cx: Context) {
    let name = cx.child_path().file_name().unwrap().to_string_lossy().into_owned();
    let here = cx.dir().join(&name);
    // A copy would be open for writing in whatever another thread forks meanwhile, and so be busy.
    #[cfg(unix)]
    std::os::unix::fs::symlink(cx.child_path(), here).unwrap();
    #[cfg(not(unix))]
    std::fs::copy(cx.child_path(), here).unwrap();
    let request = cx.child_at(format!("./{name}"), &["say", "here"]);
    assert_eq!(cx.output(request).await.stdout.to_text(), "here\n");
}

async fn names_of_directories_may_be_strange(cx: Context) {
    for name in ["with space", "100%", "#?", "\u{20ac}", "-rf"] {
        let dir = cx.dir().join(name);
        std::fs::create_dir(&dir).unwrap();
        let output = cx.output(cx.child(&["cwd"]).cwd(&dir)).await;
        assert_eq!(output.stdout.to_text().trim_end(), dir.to_string_lossy());
    }
}

/// What a process does to its directory is its own business, and that of the next one.
async fn a_process_outlives_its_directory(cx: Context) {
    let dir = cx.dir().join("doomed");
    std::fs::create_dir(&dir).unwrap();
    let mut watched = Watched::new(cx.spawn(cx.child(&["without-directory"]).cwd(&dir).stdin(Stdin::Piped)).await);
    // Systems that keep the directory of a process do not let go of it.
    watched.until_stdout("\n").await;
    let removed = watched.stdout_text() == "removed\n";
    assert!(removed || cfg!(windows), "{watched}");
    watched.write("still here\n").await;
    watched.until_stdout("line still here\n").await;
    assert!(watched.read_to_end().await.success());
    assert_eq!(dir.exists(), !removed);
    assert_eq!(cx.output(cx.child(&["say", "next"])).await.stdout.to_text(), "next\n");
}

async fn a_directory_that_is_gone_starts_nothing_and_hinders_nothing(cx: Context) {
    let dir = cx.dir().join("gone");
    std::fs::create_dir(&dir).unwrap();
    assert_eq!(cx.output(cx.child(&["say", "there"]).cwd(&dir)).await.stdout.to_text(), "there\n");
    std::fs::remove_dir(&dir).unwrap();
    assert!(cx.environment().spawn(cx.child(&["say", "gone"]).cwd(&dir)).await.is_err());
    std::fs::create_dir(&dir).unwrap();
    assert_eq!(cx.output(cx.child(&["say", "back"]).cwd(&dir)).await.stdout.to_text(), "back\n");
}
