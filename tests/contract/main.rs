//! Every case of the contract, in every place.

mod places;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (place, suite) in places::all() {
        for case in suite.cases() {
            let suite = suite.clone();
            let name = format!("{place}::{}", case.name());
            trials.push(Trial::test(name, move || {
                suite.run_blocking(case);
                Ok::<_, Failed>(())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
