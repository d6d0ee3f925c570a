//! Where the Hub and its cache are: what the caller says, else the environment as the Python library reads it.

use super::OpenOptions;
use crate::Error;
use std::path::PathBuf;

/// Everything a download needs to know.
pub(crate) struct Settings {
    pub(crate) cache: PathBuf,
    pub(crate) endpoint: Option<String>,
    pub(crate) offline: bool,
    pub(crate) token: Option<String>,
}

impl Settings {
    /// `variable` looks up the environment.
    pub(crate) fn read(
        options: &OpenOptions<'_>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Settings, Error> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let home = |name: &str| variable(name).map(PathBuf::from);
        let cache = options
            .cache
            .clone()
            .or_else(|| home("HF_HUB_CACHE"))
            .or_else(|| Some(home("HF_HOME")?.join("hub")))
            .or_else(|| Some(home("XDG_CACHE_HOME")?.join("huggingface/hub")))
            .or_else(|| Some(home("HOME").or_else(|| home("USERPROFILE"))?.join(".cache/huggingface/hub")))
            .ok_or_else(|| {
                Error::new("no place for the Hub's cache: neither HF_HOME nor HOME is set; set HF_HOME to a directory")
            })?;
        let set = |value: String| matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE");
        Ok(Settings {
            cache,
            endpoint: options
                .endpoint
                .clone()
                .or_else(|| variable("HF_ENDPOINT"))
                .map(|e| e.trim_end_matches('/').to_string()),
            offline: options.offline.unwrap_or_else(|| variable("HF_HUB_OFFLINE").is_some_and(set)),
            token: variable("HF_TOKEN"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Settings {
        let find = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.to_string());
        Settings::read(&OpenOptions::default(), &find).unwrap()
    }

    #[test]
    fn the_environment_is_read_as_python_reads_it() {
        assert_eq!(read(&[("HF_HOME", "/h")]).cache, PathBuf::from("/h/hub"));
        assert_eq!(read(&[("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c")]).cache, PathBuf::from("/c"));
        assert_eq!(read(&[("HOME", "/u"), ("HF_HOME", "")]).cache, PathBuf::from("/u/.cache/huggingface/hub"));
        let settings = read(&[("HOME", "/u"), ("HF_ENDPOINT", "http://hub/"), ("HF_HUB_OFFLINE", "true")]);
        assert_eq!((settings.endpoint.as_deref(), settings.offline), (Some("http://hub"), true));
        assert!(!read(&[("HOME", "/u"), ("HF_HUB_OFFLINE", "0")]).offline);
        assert!(Settings::read(&OpenOptions::default(), &|_| None).is_err());
    }
}
