//! Reconstructs from strace's output what a program did below one directory. A call there that the model does not
//! support is an error, so that nothing is silently ignored.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::disk::Op;
use super::tree::{Attributes, is_of_programs};

/// For `strace --trace`: every call that changes a file or a directory, even if the model does not support it. `?`
/// marks calls that some architectures lack.
pub const SYSCALLS: &str = "openat,openat2,?open,?creat,write,writev,pwrite64,pwritev,pwritev2,ftruncate,truncate,\
    fallocate,?chmod,fchmod,fchmodat,?fchmodat2,?chown,?lchown,fchown,fchownat,setxattr,lsetxattr,fsetxattr,\
    removexattr,lremovexattr,fremovexattr,fsync,fdatasync,sync_file_range,sync,syncfs,?rename,renameat,renameat2,\
    ?unlink,unlinkat,?rmdir,?mkdir,mkdirat,?link,linkat,?symlink,symlinkat,?mknod,mknodat,lseek,copy_file_range,\
    sendfile,splice,mmap,ioctl";

/// The operations below `root`, an absolute path without symbolic links, in the order in which they completed. The
/// trace must come from `strace -f --decode-fds=path -xx` with these system calls.
pub fn operations(trace: &str, root: &Path) -> Result<Vec<Op>> {
    let root = root.to_str().context("the path is not UTF-8")?;
    let mut reader = Reader {
        root,
        offsets: HashMap::new(),
        ops: Vec::new(),
    };
    let mut unfinished: HashMap<&str, &str> = HashMap::new();
    for line in trace.lines() {
        let (process, text) = line
            .split_once(' ')
            .context("a line without a process id")?;
        let text = text.trim_start();
        if let Some(begun) = text.strip_suffix(" <unfinished ...>") {
            unfinished.insert(process, begun);
        } else if let Some(resumed) = text.strip_prefix("<... ") {
            let begun = unfinished
                .remove(process)
                .context("a call resumes that never began")?;
            let (_, rest) = resumed.split_once(" resumed>").context("not resumed")?;
            reader.read(&format!("{begun}{rest}"))?;
        } else if !text.starts_with(['+', '-']) {
            reader.read(text)?;
        }
    }
    Ok(reader.ops)
}

struct Reader<'a> {
    root: &'a str,
    /// Offset of the next write to an open file, by file descriptor.
    offsets: HashMap<u32, usize>,
    ops: Vec<Op>,
}

impl Reader<'_> {
    /// `name(argument, ...) = result`
    fn read(&mut self, line: &str) -> Result<()> {
        let parsed = line.split_once('(').and_then(|(name, rest)| {
            let (arguments, result) = rest.rsplit_once(") ")?;
            Some((name, arguments, result.trim_start().strip_prefix("= ")?))
        });
        let (name, arguments, result) = parsed.with_context(|| format!("not a call: {line}"))?;
        // A failed call changed nothing; `?` marks a call that its process did not survive.
        if result.starts_with(['-', '?']) {
            return Ok(());
        }
        // No string contains a comma, because strings are hexadecimal.
        let arguments: Vec<&str> = arguments.split(", ").collect();
        self.call(name, &arguments, result)
            .with_context(|| format!("{name}({}) = {result}", shown(&arguments)))
    }

    fn call(&mut self, name: &str, arguments: &[&str], result: &str) -> Result<()> {
        let argument = |number: usize| arguments.get(number).copied().context("too few arguments");
        let path = match name {
            "open" | "creat" | "rename" | "unlink" | "rmdir" | "mkdir" | "chmod" | "chown"
            | "lchown" | "truncate" | "setxattr" | "lsetxattr" => self.below(argument(0)?)?,
            "openat" | "openat2" | "renameat" | "renameat2" | "unlinkat" | "mkdirat"
            | "fchmodat" | "fchownat" => self.below_at(argument(0)?, argument(1)?)?,
            "write" | "pwrite64" | "ftruncate" | "fchmod" | "fchown" | "fsetxattr" | "fsync"
            | "fdatasync" | "lseek" => self.below_fd(argument(0)?)?,
            _ => {
                ensure!(!self.concerns(name, arguments), "this call is not modelled");
                None
            }
        };
        let Some(path) = path else { return Ok(()) };
        let op = match name {
            "openat" => return self.open(path, argument(2)?, arguments.get(3), result),
            "open" => return self.open(path, argument(1)?, arguments.get(2), result),
            "write" => {
                let number = fd(argument(0)?)?.0;
                let bytes = written(argument(1)?, result)?;
                let place = self.offsets.get_mut(&number);
                let place = place.context("a write to a file that was not opened before")?;
                let offset = *place;
                *place += bytes.len();
                Op::Write {
                    path,
                    offset,
                    bytes,
                }
            }
            "pwrite64" => Op::Write {
                path,
                offset: argument(3)?.parse()?,
                bytes: written(argument(1)?, result)?,
            },
            "ftruncate" | "truncate" => Op::Truncate(path, argument(1)?.parse()?),
            "fchmod" | "chmod" => Op::SetMode(path, octal(argument(1)?)?),
            "fchmodat" => Op::SetMode(path, octal(argument(2)?)?),
            "fchown" | "chown" | "lchown" => {
                Op::SetOwner(path, owner(argument(1)?)?, owner(argument(2)?)?)
            }
            "fchownat" => Op::SetOwner(path, owner(argument(2)?)?, owner(argument(3)?)?),
            "setxattr" | "lsetxattr" | "fsetxattr" => {
                let name = text(argument(1)?)?;
                if !is_of_programs(&name) {
                    return Ok(());
                }
                Op::SetXattr(path, name, bytes(argument(2)?)?)
            }
            "fsync" => Op::Sync(path),
            "fdatasync" => Op::SyncData(path),
            "rename" => Op::Rename(path, self.inside(self.below(argument(1)?)?)?),
            "renameat" | "renameat2" => {
                let flags = arguments.get(4).copied().unwrap_or("0");
                let to = self.below_at(argument(2)?, argument(3)?)?;
                let to = self.inside(to)?;
                match flags {
                    "0" | "RENAME_NOREPLACE" => Op::Rename(path, to),
                    "RENAME_EXCHANGE" => Op::Exchange(path, to),
                    _ => bail!("{flags} is not modelled"),
                }
            }
            "unlinkat" if argument(2)?.contains("AT_REMOVEDIR") => Op::RemoveDirectory(path),
            "unlink" | "unlinkat" => Op::Unlink(path),
            "rmdir" => Op::RemoveDirectory(path),
            "mkdir" => Op::MakeDirectory(path, new(argument(1)?)?),
            "mkdirat" => Op::MakeDirectory(path, new(argument(2)?)?),
            _ => bail!("this call is not modelled"),
        };
        self.ops.push(op);
        Ok(())
    }

    fn open(&mut self, path: String, flags: &str, mode: Option<&&str>, result: &str) -> Result<()> {
        let has = |flag: &str| flags.split('|').any(|set| set == flag);
        ensure!(!has("O_APPEND"), "appending is not modelled");
        ensure!(!has("O_TMPFILE"), "a file without a name is not modelled");
        self.offsets.insert(fd(result)?.0, 0);
        if has("O_CREAT") {
            // Without O_EXCL it is unknown whether the file existed.
            ensure!(has("O_EXCL"), "O_CREAT without O_EXCL is not modelled");
            let attributes = new(mode.context("no mode")?)?;
            self.ops.push(Op::Create(path, attributes));
        } else if has("O_TRUNC") {
            self.ops.push(Op::Truncate(path, 0));
        }
        Ok(())
    }

    /// Whether a call that the model does not support may change something below the root.
    fn concerns(&self, name: &str, arguments: &[&str]) -> bool {
        let may_change = match name {
            "sync" => true,
            "mmap" => {
                let has = |flag| arguments.iter().any(|argument| argument.contains(flag));
                has("PROT_WRITE") && has("MAP_SHARED")
            }
            _ => true,
        };
        let is_below = |argument: &&str| {
            let of_fd = fd(argument).map(|(_, path)| path);
            let path = of_fd.or_else(|_| text(argument));
            path.is_ok_and(|path| self.relative(&path).is_some())
        };
        may_change && (name == "sync" || arguments.iter().any(is_below))
    }

    fn inside(&self, path: Option<String>) -> Result<String> {
        path.with_context(|| format!("it leaves `{}`, which is not modelled", self.root))
    }

    fn below(&self, argument: &str) -> Result<Option<String>> {
        let path = text(argument)?;
        ensure!(path.starts_with('/'), "a relative path is not modelled");
        Ok(self.relative(&path))
    }

    fn below_at(&self, directory: &str, argument: &str) -> Result<Option<String>> {
        let path = text(argument)?;
        if path.starts_with('/') {
            return Ok(self.relative(&path));
        }
        let directory = annotated(directory)?;
        Ok(self.relative(&format!("{directory}/{path}")))
    }

    /// The path of an open file. A file without a name can't reappear after a power cut.
    fn below_fd(&self, argument: &str) -> Result<Option<String>> {
        if argument.ends_with("(deleted)") || !argument.contains('<') {
            return Ok(None);
        }
        Ok(self.relative(&fd(argument)?.1))
    }

    fn relative(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(self.root)?;
        let below = rest.strip_prefix('/');
        (rest.is_empty() || below.is_some())
            .then(|| below.unwrap_or_default().trim_end_matches('/').to_owned())
    }
}

/// `7<path>`
fn fd(argument: &str) -> Result<(u32, String)> {
    let (number, _) = argument.split_once('<').context("no path")?;
    Ok((number.parse()?, annotated(argument)?))
}

fn annotated(argument: &str) -> Result<String> {
    let (_, rest) = argument.split_once('<').context("no path")?;
    let (path, _) = rest.rsplit_once('>').context("no end of the path")?;
    Ok(String::from_utf8(unescape(path)?)?)
}

fn text(argument: &str) -> Result<String> {
    Ok(String::from_utf8(bytes(argument)?)?)
}

/// A string that strace did not truncate.
fn bytes(argument: &str) -> Result<Vec<u8>> {
    let inner = argument
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    unescape(inner.with_context(|| format!("not a whole string: {argument}"))?)
}

/// The part of the string that was written.
fn written(argument: &str, result: &str) -> Result<Vec<u8>> {
    let mut bytes = bytes(argument)?;
    let length: usize = result.parse()?;
    ensure!(
        length <= bytes.len(),
        "the call wrote more than its buffer contains"
    );
    bytes.truncate(length);
    Ok(bytes)
}

fn unescape(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(hex) = rest.strip_prefix("\\x") {
            let digits = hex.get(..2).context("an incomplete byte")?;
            bytes.push(u8::from_str_radix(digits, 16)?);
            rest = &hex[2..];
        } else {
            ensure!(first != '\\', "an unknown escape");
            let length = first.len_utf8();
            bytes.extend_from_slice(&rest.as_bytes()[..length]);
            rest = &rest[length..];
        }
    }
    Ok(bytes)
}

fn octal(argument: &str) -> Result<u32> {
    Ok(u32::from_str_radix(argument, 8)?)
}

fn owner(argument: &str) -> Result<Option<u32>> {
    Ok(if argument == "-1" {
        None
    } else {
        Some(argument.parse()?)
    })
}

/// Attributes of a file that root creates. Rejects a mode that the umask would change, because the recording would then
/// differ from the disk.
fn new(mode: &str) -> Result<Attributes> {
    let mode = octal(mode)?;
    Ok(Attributes {
        mode,
        ..Attributes::default()
    })
}

/// The arguments, truncated.
fn shown(arguments: &[&str]) -> String {
    let cut = |argument: &&str| {
        let text = unescape(argument).unwrap_or_default();
        String::from_utf8_lossy(&text)
            .chars()
            .take(80)
            .collect::<String>()
    };
    let cut: Vec<String> = arguments.iter().map(cut).collect();
    cut.join(", ")
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
