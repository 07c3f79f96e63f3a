//! The commands in the controller's messages help, exactly as printed.

use globalps_testkit::fleet::advice;

#[test]
fn each_command_that_a_message_advises_helps_and_undoes_nothing() {
    let situations = advice::run().unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(situations, 5);
}
