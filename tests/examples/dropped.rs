use globalps_tests::*;
fn main() {
    let mode = std::env::args().nth(1).unwrap();
    let c = Cluster::up(&Options {
        dir: "/work/main/target/clusters/dropped".into(),
        nodes: 1,
    })
    .unwrap();
    println!("{}", c.kubectl(&["get", "nodes"]).unwrap());
    match mode.as_str() {
        "panic" => panic!("as asked"),
        "wait" => std::thread::sleep(std::time::Duration::from_secs(60)),
        "exit" => std::process::exit(3),
        _ => {}
    }
}
