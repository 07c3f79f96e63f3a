//! A refused write delays only its own object, for every kind of write.

use globalps_testkit::fleet::refused_writes;

#[test]
fn a_refused_write_costs_only_its_object() {
    let cases = refused_writes::run().unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(cases, 20);
}
