#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::atomic::AtomicUsize;

use super::*;

/// Counts how often the task was woken.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn taken(marks: &Marks) -> Vec<usize> {
    let mut slots = Vec::new();
    marks.take(|slot| slots.push(slot));
    slots
}

#[test]
fn a_mark_wakes_the_task_once_until_it_is_taken() {
    let (mut marks, task) = (Marks::default(), Arc::new(Task::default()));
    let (first, far) = (marks.waker(0), marks.waker(200));
    marks.register(&Arc::clone(&task).into());
    first.wake_by_ref();
    first.wake_by_ref();
    assert_eq!(task.0.load(Ordering::SeqCst), 1);
    marks.register(&Arc::clone(&task).into());
    far.wake_by_ref();
    assert_eq!(task.0.load(Ordering::SeqCst), 2);
    assert_eq!(taken(&marks), [0, 200]);
    assert_eq!(taken(&marks), [0; 0]);
    marks.register(&Arc::clone(&task).into());
    first.wake();
    assert_eq!((task.0.load(Ordering::SeqCst), taken(&marks)), (3, vec![0]));
}

#[test]
fn no_mark_is_lost_between_threads() {
    const ROUNDS: usize = 2_000;
    let mut marks = Marks::default();
    let wakers: Vec<_> = (0..4).map(|slot| marks.waker(slot * 63)).collect();
    let said: Arc<Vec<AtomicUsize>> = Arc::new((0..4).map(|_| AtomicUsize::new(0)).collect());
    let current = std::thread::current();
    let unpark = Arc::new(Unpark(current)).into();
    let threads: Vec<_> = wakers
        .into_iter()
        .enumerate()
        .map(|(index, waker)| {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                for _ in 0..ROUNDS {
                    said[index].fetch_add(1, Ordering::SeqCst);
                    waker.wake_by_ref();
                }
            })
        })
        .collect();
    // What a task does: register, take the marks, look, and sleep. The last word of each thread must be seen.
    let mut seen = [0; 4];
    while seen.iter().any(|count| *count < ROUNDS) {
        marks.register(&unpark);
        let slots = taken(&marks);
        if slots.is_empty() {
            std::thread::park_timeout(std::time::Duration::from_secs(10));
            continue;
        }
        for slot in slots {
            seen[slot / 63] = said[slot / 63].load(Ordering::SeqCst);
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
