//! The working directory.

use super::context::Context;
use crate::path_uri::PathUri;

cases! {"cwd":
    a_process_starts_in_its_directory,
    a_directory_can_be_given_as_a_uri,
    a_relative_program_is_relative_to_the_directory,
    names_of_directories_may_be_strange,
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
