//! Credentials on this machine and in the cluster: files, helper programs, prompts, Secrets.

pub(crate) mod auth_file;
pub(crate) mod file;
pub(crate) mod helper;
pub(crate) mod live_check;
pub(crate) mod logins;
pub(crate) mod manifest;
pub(crate) mod password;
