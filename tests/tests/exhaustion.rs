//! No tenant can exhaust the controller by the size or number of its objects.

use globalps_testkit::fleet::exhaustion;

#[test]
fn a_tenant_with_large_and_many_objects_harms_only_itself() {
    exhaustion::run().unwrap_or_else(|error| panic!("{error:#}"));
}
