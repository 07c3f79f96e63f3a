//! Lines in the format of strace 6.1, with readable strings where hexadecimal makes no difference.

use super::*;

fn read(lines: &[&str]) -> Result<Vec<Op>> {
    operations(&lines.join("\n"), Path::new("/root"))
}

fn create(path: &str, mode: u32) -> Op {
    let attributes = Attributes {
        mode,
        ..Attributes::default()
    };
    Op::Create(path.to_owned(), attributes)
}

fn write(path: &str, offset: usize, text: &str) -> Op {
    Op::Write {
        path: path.to_owned(),
        offset,
        bytes: text.into(),
    }
}

#[test]
fn a_file_that_is_replaced_is_seen_step_by_step() {
    let ops = read(&[
        r#"7  openat(AT_FDCWD</>, "/root/t", O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0600) = 9</root/t>"#,
        r"7  fchown(9</root/t>, 5, -1) = 0",
        r#"7  write(9</root/t>, "\x61\x2c\x20\x22", 4) = 4"#,
        r#"7  write(9</root/t>, "\x62\x63", 2) = 1"#,
        r"7  fchmod(9</root/t>, 0640) = 0",
        r#"7  fsetxattr(9</root/t>, "user.x", "\x01", 1, 0) = 0"#,
        r"7  fsync(9</root/t>) = 0",
        r#"7  rename("/root/t", "/root/f") = 0"#,
        r#"7  openat(AT_FDCWD</>, "/root", O_RDONLY|O_CLOEXEC) = 9</root>"#,
        r"7  fsync(9</root>) = 0",
        r"7  +++ exited with 0 +++",
    ]);
    let at = || "t".to_owned();
    let expected = [
        create("t", 0o600),
        Op::SetOwner(at(), Some(5), None),
        write("t", 0, "a, \""),
        write("t", 4, "b"),
        Op::SetMode(at(), 0o640),
        Op::SetXattr(at(), "user.x".to_owned(), vec![1]),
        Op::Sync(at()),
        Op::Rename(at(), "f".to_owned()),
        Op::Sync(String::new()),
    ];
    assert_eq!(ops.unwrap(), expected);
}

#[test]
fn directories_come_and_go() {
    let ops = read(&[
        r#"7  mkdir("/root/d", 0700) = 0"#,
        r#"7  unlinkat(4</root/d>, "x", 0) = 0"#,
        r#"7  unlinkat(AT_FDCWD</>, "/root/d", AT_REMOVEDIR) = 0"#,
        r#"7  rmdir("/root/e") = 0"#,
        r#"7  unlink("/root/f") = 0"#,
    ]);
    let attributes = Attributes {
        mode: 0o700,
        ..Attributes::default()
    };
    let expected = [
        Op::MakeDirectory("d".to_owned(), attributes),
        Op::Unlink("d/x".to_owned()),
        Op::RemoveDirectory("d".to_owned()),
        Op::RemoveDirectory("e".to_owned()),
        Op::Unlink("f".to_owned()),
    ];
    assert_eq!(ops.unwrap(), expected);
}

#[test]
fn an_interleaved_call_counts_where_it_ended() {
    let ops = read(&[
        r"7  fsync(9</root/a> <unfinished ...>",
        r"8  fdatasync(8</root/b>) = 0",
        r"7  <... fsync resumed>) = 0",
    ]);
    let expected = [Op::SyncData("b".to_owned()), Op::Sync("a".to_owned())];
    assert_eq!(ops.unwrap(), expected);
}

#[test]
fn what_failed_or_was_done_elsewhere_is_nothing() {
    for line in [
        r#"7  unlink("/root/t") = -1 ENOENT (No such file or directory)"#,
        r#"7  unlink("/rooted/t") = 0"#,
        r#"7  write(3<socket:[7]>, "x", 1) = 1"#,
        r#"7  write(3</root/t>(deleted), "x", 1) = 1"#,
        r#"7  rename("/tmp/a", "/tmp/b") = 0"#,
        r"7  mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3</root/t>, 0) = 0x7f0",
        r#"7  openat(AT_FDCWD</>, "/root/f", O_RDONLY|O_CLOEXEC) = 9</root/f>"#,
        r#"7  fsetxattr(9</root/t>, "security.selinux", "\x01", 1, 0) = 0"#,
        r"7  --- SIGCHLD {si_signo=SIGCHLD} ---",
    ] {
        assert_eq!(read(&[line]).unwrap(), [], "{line}");
    }
}

#[test]
fn what_the_model_does_not_know_is_an_error() {
    for line in [
        r#"7  link("/root/a", "/root/b") = 0"#,
        r#"7  rename("/root/a", "/tmp/b") = 0"#,
        r#"7  openat(AT_FDCWD</>, "/root/f", O_WRONLY|O_CREAT|O_TRUNC, 0600) = 9</root/f>"#,
        r#"7  openat(AT_FDCWD</>, "/root/f", O_WRONLY|O_APPEND) = 9</root/f>"#,
        r#"7  writev(9</root/f>, [{iov_base="x", iov_len=1}], 1) = 1"#,
        r#"7  write(9</root/f>, "\x61"..., 2) = 2"#,
        r"7  lseek(9</root/f>, 5, SEEK_SET) = 5",
        r"7  mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 3</root/t>, 0) = 0x7f0",
        r"7  sync() = 0",
    ] {
        assert!(read(&[line]).is_err(), "{line}");
    }
}
