//! Roots that are one file, or a link, or not there yet; and entries whose paths lead elsewhere later.

use super::*;

#[tokio::test]
async fn a_root_that_is_one_file_is_written_in_place() {
    let scene = Scene::new();
    let files = under(scene.ro().write(uri(&scene.o.join("f"))));
    let before = crate::support::inode(scene.o.join("f"));
    write(&*files, scene.o.join("f"), "longer than before").await.unwrap();
    write(&*files, scene.o.join("f"), "new").await.unwrap();
    assert_eq!(content(scene.o.join("f")), b"new");
    assert_eq!((crate::support::inode(scene.o.join("f")), names(&scene.o)), (before, vec!["f".into()]));
    read_only(remove(&*files, scene.o.join("f")).await);
    read_only(write(&*files, scene.o.join("g"), "x").await);
}

#[tokio::test]
async fn a_root_that_is_a_link_is_writable_by_both_names() {
    let scene = Scene::new();
    symlink(&scene.o, scene.w.parent().unwrap().join("root")).unwrap();
    let link = scene.w.parent().unwrap().join("root");
    let files = under(SandboxIntent::workspace_write([uri(&link)]).cwd(uri(&link)));
    write(&*files, link.join("one"), "x").await.unwrap();
    write(&*files, scene.o.join("two"), "x").await.unwrap();
    read_only(write(&*files, scene.w.join("f"), "x").await);
}

#[tokio::test]
async fn a_root_itself_stays() {
    let scene = Scene::new();
    let files = under(scene.ww());
    assert!(remove(&*files, &scene.w).await.is_err());
    assert_eq!(names(&scene.w), ["f"]);
}

#[tokio::test]
async fn a_root_that_is_made_anew_counts_and_a_missing_one_is_not_made() {
    let scene = Scene::new();
    let missing = scene.o.join("root");
    let files = under(SandboxIntent::workspace_write([uri(&scene.w), uri(&missing)]).cwd(uri(&scene.w)));
    write(&*files, scene.w.join("one"), "x").await.unwrap();
    read_only(write(&*files, missing.join("one"), "x").await);
    assert!(!missing.exists());
    fs::remove_dir_all(&scene.w).unwrap();
    for root in [&scene.w, &missing] {
        fs::create_dir(root).unwrap();
        write(&*files, root.join("two"), "x").await.unwrap();
    }
}

#[tokio::test]
async fn a_link_that_leads_elsewhere_later_is_bound_anew() {
    let scene = Scene::new();
    let above = scene.w.parent().unwrap();
    let [one, two] = ["one", "two"].map(|name| above.join(name));
    for directory in [&one, &two] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("s"), "secret").unwrap();
    }
    let data = above.join("data");
    symlink(&one, &data).unwrap();
    let files = under(scene.ro().deny(uri(&data.join("s"))));
    denied(read(&*files, one.join("s")).await);
    assert_eq!(read(&*files, two.join("s")).await.unwrap(), b"secret");
    fs::remove_file(&data).unwrap();
    symlink(&two, &data).unwrap();
    denied(read(&*files, two.join("s")).await);
    assert_eq!(read(&*files, one.join("s")).await.unwrap(), b"secret");
}

/// What a command may write it can exchange for a link to everything, for the calls that follow.
#[tokio::test]
async fn a_writable_directory_that_becomes_a_link_to_the_root_directory_gives_nothing() {
    let scene = Scene::new();
    let cache = scene.w.join("cache");
    for intent in [scene.ww().write(uri(&cache)), scene.ww().workspace_root(uri(&cache))] {
        fs::create_dir(&cache).unwrap();
        let files = under(intent.clone());
        write(&*files, cache.join("f"), "x").await.unwrap();
        remove(&*files, cache.join("f")).await.unwrap();
        fs::remove_dir(&cache).unwrap();
        symlink("/", &cache).unwrap();
        for files in [files, under(intent)] {
            for path in [scene.o.join("f"), scene.w.join(".git")] {
                let error = write(&*files, path, "x").await.unwrap_err();
                assert!(matches!(error, FsError::Sandbox(SandboxError::Preparation { .. })), "{error:?}");
            }
        }
        fs::remove_file(&cache).unwrap();
        assert_eq!((content(scene.o.join("f")), scene.w.join(".git").exists()), (b"f".to_vec(), false));
    }
}

#[tokio::test]
async fn what_a_link_to_the_root_directory_gave_goes_with_it() {
    let scene = Scene::new();
    let all = scene.w.parent().unwrap().join("all");
    let only = SandboxIntent::minimal_read([uri(&scene.w)]).cwd(uri(&scene.w));
    symlink("/", &all).unwrap();
    let files = under(only.read(uri(&all)));
    assert_eq!(read(&*files, scene.o.join("f")).await.unwrap(), b"f");
    fs::remove_file(&all).unwrap();
    hidden(read(&*files, scene.o.join("f")).await);
    symlink(&scene.o, &all).unwrap();
    assert_eq!(read(&*files, scene.o.join("f")).await.unwrap(), b"f");
}

/// An entry may be missing at first, and then say less than what is around it.
#[tokio::test]
async fn an_entry_that_appears_within_what_is_writable_counts() {
    let scene = Scene::new();
    let later = scene.o.join("later");
    let skipped = Entry { skip_missing: true, ..Entry::path(uri(&later), Access::Read) };
    let files = under(SandboxIntent::no_network().cwd(uri(&scene.w)).entry(skipped));
    write(&*files, scene.o.join("f"), "x").await.unwrap();
    fs::create_dir(&later).unwrap();
    read_only(write(&*files, later.join("f"), "x").await);
}

#[tokio::test]
async fn what_is_readable_and_appears_later_can_be_read() {
    let scene = Scene::new();
    let later = scene.o.join("later");
    let files = under(SandboxIntent::minimal_write([uri(&later)]).cwd(uri(&scene.w)));
    hidden(read(&*files, later.join("f")).await);
    fs::create_dir(&later).unwrap();
    fs::write(later.join("f"), "x").unwrap();
    assert_eq!(read(&*files, later.join("f")).await.unwrap(), b"x");
}
