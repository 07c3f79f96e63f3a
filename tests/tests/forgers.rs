//! Objects that other clients write with the controller's field manager are neither trusted nor overwritten.

use globalps_testkit::fleet::forgers;

#[test]
fn in_a_namespace_only_what_the_controller_wrote_is_its_own() {
    forgers::in_namespaces().unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn for_operators_only_what_the_controller_wrote_is_its_own() {
    forgers::for_operators().unwrap_or_else(|error| panic!("{error:#}"));
}
