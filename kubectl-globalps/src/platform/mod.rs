//! Differences between Linux, macOS and Windows: locations of programs and files. Pure, except [`program`].

use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Platform {
    Linux,
    MacOs,
    Windows,
}

/// The platform of this build. Other Unix systems count as Linux.
pub(crate) const HERE: Platform = if cfg!(windows) {
    Platform::Windows
} else if cfg!(target_os = "macos") {
    Platform::MacOs
} else {
    Platform::Linux
};

impl Platform {
    /// Docker's and podman's credentials files, for messages.
    pub(crate) fn auth_files(self) -> &'static str {
        match self {
            Self::Linux => {
                "docker's `~/.docker/config.json` or podman's `$XDG_RUNTIME_DIR/containers/auth.json`"
            }
            Self::MacOs => {
                "docker's `~/.docker/config.json` or podman's `~/.config/containers/auth.json`"
            }
            Self::Windows => {
                r"docker's `%USERPROFILE%\.docker\config.json` or podman's `%USERPROFILE%\.config\containers\auth.json`"
            }
        }
    }
}

/// The program to start for `name`. On Windows the standard library appends only `.exe`, so a `.cmd` or `.bat` is searched
/// here. A name without a match is returned unchanged: starting it reports the error.
pub(crate) fn program(name: &str) -> OsString {
    if HERE != Platform::Windows {
        return name.into();
    }
    let text = |variable| std::env::var_os(variable).unwrap_or_default();
    let directories: Vec<String> = std::env::split_paths(&text("PATH"))
        .filter_map(|directory| directory.to_str().map(str::to_owned))
        .collect();
    let extensions = text("PATHEXT").to_string_lossy().into_owned();
    let is_file = |path: &str| PathBuf::from(path).is_file();
    find_on_windows(name, &directories, &extensions, &is_file)
        .unwrap_or_else(|| name.to_owned())
        .into()
}

/// Like Go's `exec.LookPath` on Windows. A name with a directory is tried with each extension of `PATHEXT`; any other
/// name is searched in the absolute directories of `PATH`, never in the current directory.
fn find_on_windows(
    name: &str,
    directories: &[String],
    extensions: &str,
    is_file: &dyn Fn(&str) -> bool,
) -> Option<String> {
    let listed = if extensions.is_empty() {
        ".com;.exe;.bat;.cmd"
    } else {
        extensions
    };
    let extensions: Vec<String> = listed
        .split(';')
        .filter(|extension| !extension.is_empty())
        .map(|extension| format!(".{}", extension.trim_start_matches('.')).to_lowercase())
        .collect();
    let of_path = |path: &str| {
        let file = path.rsplit(['\\', '/', ':']).next().unwrap_or_default();
        let exact = file.contains('.').then(|| path.to_owned());
        let extended = extensions
            .iter()
            .map(|extension| format!("{path}{extension}"));
        exact
            .into_iter()
            .chain(extended)
            .find(|candidate| is_file(candidate))
    };
    if name.contains(['\\', '/', ':']) {
        return of_path(name);
    }
    directories
        .iter()
        .filter(|directory| is_absolute_on_windows(directory))
        .find_map(|directory| of_path(&format!(r"{}\{name}", directory.trim_end_matches('\\'))))
}

/// `C:\...`, or a network path.
fn is_absolute_on_windows(path: &str) -> bool {
    let bytes = path.as_bytes();
    let has_drive = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.get(1) == Some(&b':')
        && matches!(bytes.get(2), Some(b'\\' | b'/'));
    has_drive || path.starts_with(r"\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_on_windows_as_by_go() {
        const FILES: [&str; 6] = [
            r"C:\tools\docker-credential-x.cmd",
            r"C:\bin\docker-credential-x.exe",
            r"C:\bin\docker-credential-x.y.bat",
            r".\docker-credential-here.exe",
            r"rel\docker-credential-rel.exe",
            r"C:\bin\script.ps1",
        ];
        let directories = ["", ".", "rel", r"C:\tools\", r"\tools", r"C:\bin"];
        let directories = directories.map(str::to_owned);
        let is_file = |path: &str| FILES.contains(&path);
        for (name, extensions, expected) in [
            ("docker-credential-x", "", Some(FILES[0])),
            ("docker-credential-x", ".EXE", Some(FILES[1])),
            ("docker-credential-x", "exe;;", Some(FILES[1])),
            ("docker-credential-x.exe", "", Some(FILES[1])),
            ("docker-credential-x.y", "", Some(FILES[2])),
            ("docker-credential-here", "", None),
            ("docker-credential-rel", "", None),
            (r".\docker-credential-here", "", Some(FILES[3])),
            ("script", "", None),
            ("script", ".ps1", Some(FILES[5])),
            (r"C:\bin\docker-credential-x", "", Some(FILES[1])),
            (r"C:\bin\absent", "", None),
        ] {
            let found = find_on_windows(name, &directories, extensions, &is_file);
            assert_eq!(found.as_deref(), expected, "{name} {extensions}");
        }
    }

    #[test]
    fn each_platform_names_its_own_credentials_files() {
        for (platform, expected) in [
            (Platform::Linux, "`$XDG_RUNTIME_DIR/containers/auth.json`"),
            (Platform::MacOs, "`~/.config/containers/auth.json`"),
            (Platform::Windows, r"`%USERPROFILE%\.docker\config.json`"),
        ] {
            assert!(platform.auth_files().contains(expected), "{platform:?}");
        }
    }
}
