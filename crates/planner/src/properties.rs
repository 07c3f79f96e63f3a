//! Configuration of the property tests.

use proptest::test_runner::{Config, RngSeed};

/// Runs this number of cases with a fixed seed, so that results differ only with the code. `PROPTEST_CASES` and
/// `PROPTEST_RNG_SEED` explore more.
pub fn config(cases: u32) -> Config {
    let given = Config::default();
    let is_given = |name: &str| std::env::var_os(name).is_some();
    let (cases, rng_seed) = (
        (!is_given("PROPTEST_CASES")).then_some(cases),
        (!is_given("PROPTEST_RNG_SEED")).then_some(RngSeed::Fixed(1)),
    );
    Config {
        cases: cases.unwrap_or(given.cases),
        rng_seed: rng_seed.unwrap_or(given.rng_seed),
        failure_persistence: None,
        ..given
    }
}
