//! Every case of the contract, in every place.

#[cfg(unix)]
#[path = "../../examples/custom_executor.rs"]
#[expect(dead_code, reason = "its main function is for the example")]
mod custom_executor;
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
