//! Odd values in every field that others may write: whatever the API server accepts, only the object with the value is affected.

use globalps_testkit::fleet::odd_values;

#[test]
fn an_odd_value_harms_only_the_object_that_has_it() {
    let tried = odd_values::run().unwrap_or_else(|error| panic!("{error:#}"));
    eprintln!("{tried:?}");
    assert!(tried.kinds == 7 && tried.fields > 100, "{tried:?}");
    assert!(tried.accepted > 100, "{tried:?}");
}
