use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::{Context, Waker};

use super::*;

fn wanted(missing: &[&str], present: Option<&str>) -> Wanted {
    let uri = |text: &&str| PathUri::parse(&format!("file://{text}")).unwrap();
    Wanted { missing: missing.iter().map(uri).collect(), present: present.as_ref().map(uri), sandbox: None }
}

/// A peer that answers as it is told, and remembers what it was asked.
#[derive(Default)]
struct Wire {
    asked: RefCell<Vec<(u64, Wanted)>>,
    answers: RefCell<VecDeque<Result<bool, &'static str>>>,
}

impl Wire {
    async fn add(&self, watches: &Watches, wanted: Wanted) -> Result<Option<oneshot::Receiver<()>>, &'static str> {
        watches
            .add(wanted, 3, |id, wanted| {
                self.asked.borrow_mut().push((id, wanted));
                std::future::ready(self.answers.borrow_mut().pop_front().unwrap_or(Ok(true)))
            })
            .await
    }
}

#[tokio::test]
async fn watchers_share_one_watch_and_are_told_together() {
    let (watches, wire) = (Watches::default(), Wire::default());
    let first = wire.add(&watches, wanted(&["/a"], Some("/p"))).await.unwrap().unwrap();
    let second = wire.add(&watches, wanted(&["/b", "/a"], None)).await.unwrap().unwrap();
    assert_eq!(wire.asked.borrow()[1], (2, wanted(&["/b", "/a"], Some("/p"))));
    watches.changed(3);
    assert_eq!(watches.state().watchers.len(), 2, "a number that was never used means nothing");
    watches.changed(1);
    assert_eq!((first.await, second.await), (Ok(()), Ok(())), "the former watch may have ended before it was replaced");
    let third = wire.add(&watches, wanted(&["/c"], None)).await.unwrap().unwrap();
    assert_eq!(wire.asked.borrow()[2], (3, wanted(&["/c"], None)), "who was told does not wait any more");
    watches.end();
    assert!(third.await.is_err(), "nobody knows any more");
}

#[tokio::test]
async fn a_watch_that_cannot_be_made_for_all_wakes_those_who_wait() {
    let (watches, wire) = (Watches::default(), Wire::default());
    let first = wire.add(&watches, wanted(&["/a"], None)).await.unwrap().unwrap();
    wire.answers.borrow_mut().extend([Ok(false), Ok(true)]);
    let second = wire.add(&watches, wanted(&["/b"], None)).await.unwrap().unwrap();
    assert_eq!(first.await, Ok(()));
    assert_eq!(wire.asked.borrow()[2], (3, wanted(&["/b"], None)));
    wire.answers.borrow_mut().extend([Ok(false), Ok(false)]);
    assert!(wire.add(&watches, wanted(&["/c"], None)).await.unwrap().is_none());
    assert_eq!(second.await, Ok(()));
    assert_eq!(watches.state().watchers.len(), 0);
    wire.answers.borrow_mut().push_back(Err("gone"));
    assert_eq!(wire.add(&watches, wanted(&["/c"], None)).await.unwrap_err(), "gone");
    assert_eq!(watches.state().watchers.len(), 0);
}

#[tokio::test]
async fn more_than_one_watch_can_hold_is_not_watched_and_disturbs_nobody() {
    let (watches, wire) = (Watches::default(), Wire::default());
    let mut first = wire.add(&watches, wanted(&["/a", "/b"], Some("/p"))).await.unwrap().unwrap();
    assert!(wire.add(&watches, wanted(&["/c", "/d"], None)).await.unwrap().is_none());
    assert!(wire.add(&watches, wanted(&["/c"], Some("/q"))).await.unwrap().is_none());
    assert!(wire.add(&watches, wanted(&["/c", "/d", "/e", "/f"], None)).await.unwrap().is_none());
    assert_eq!(wire.asked.borrow().len(), 1);
    assert!(first.try_recv().is_err());
    drop(first);
    assert!(
        wire.add(&watches, wanted(&["/c", "/d"], None)).await.unwrap().is_some(),
        "one that is dropped takes no room"
    );
}

#[tokio::test]
async fn whoever_waits_is_told_when_nobody_learns_what_became_of_a_new_watch() {
    let (watches, wire) = (Watches::default(), Wire::default());
    let mut first = wire.add(&watches, wanted(&["/a"], None)).await.unwrap().unwrap();
    let mut second = Box::pin(watches.add::<(), _>(wanted(&["/b"], None), 3, |_, _| std::future::pending()));
    assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(first.try_recv().is_err(), "it may still be made");
    drop(second);
    assert_eq!(first.try_recv(), Ok(()));
    let third = wire.add(&watches, wanted(&["/c"], None)).await.unwrap().unwrap();
    assert_eq!(wire.asked.borrow().last(), Some(&(3, wanted(&["/c"], None))), "who was told does not wait any more");
    watches.changed(3);
    assert_eq!(third.await, Ok(()));
}
