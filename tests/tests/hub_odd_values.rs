//! Odd values in every field that others may write on a management cluster: whatever the API server accepts, only the object with the value
//! is affected.

use globalps_testkit::fleet::odd_values::hub;

#[test]
fn an_odd_value_harms_only_the_object_of_the_hub_that_has_it() {
    let tried = hub::run().unwrap_or_else(|error| panic!("{error:#}"));
    eprintln!("{tried:?}");
    assert!(tried.kinds == 3 && tried.fields > 50, "{tried:?}");
    assert!(tried.accepted > 50, "{tried:?}");
}
