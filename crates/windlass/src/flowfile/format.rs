//! The formats of flow files.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::FlowError;

/// The format of a flow file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML 1.2, with one flow per document.
    Yaml,
    /// JSON; comments and trailing commas are accepted.
    Json,
    /// TOML.
    Toml,
}

impl Format {
    /// The format of a file, by its extension.
    ///
    /// # Errors
    /// When the extension is none of `.yaml`, `.yml`, `.json`, `.jsonc` and `.toml`.
    pub fn of_path(path: &Path) -> Result<Self, FlowError> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Ok(Self::Yaml),
            "json" | "jsonc" => Ok(Self::Json),
            "toml" => Ok(Self::Toml),
            _ => Err(FlowError::new(format!(
                "unknown format of {}: use the extension .yaml, .json or .toml",
                path.display()
            ))),
        }
    }

    /// The format of a request body, by its media type; parameters such as `charset` are ignored.
    #[must_use]
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml" => Some(Self::Yaml),
            "application/json" | "text/json" => Some(Self::Json),
            "application/toml" | "text/toml" => Some(Self::Toml),
            _ => None,
        }
    }
}

/// The flow files of a folder, by name: each file with the extension of a format. Folders in it are left out.
///
/// # Errors
/// When the folder cannot be read.
pub fn flow_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() && Format::of_path(&path).is_ok() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_and_media_types_name_the_format() {
        assert_eq!(Format::of_path(Path::new("flows/backup.YML")), Ok(Format::Yaml));
        assert_eq!(Format::of_path(Path::new("catalogue.jsonc")), Ok(Format::Json));
        assert_eq!(Format::of_path(Path::new("backup.toml")), Ok(Format::Toml));
        let error = Format::of_path(Path::new("backup.ini")).unwrap_err();
        insta::assert_snapshot!(error, @"unknown format of backup.ini: use the extension .yaml, .json or .toml");

        assert_eq!(Format::of_content_type("Application/JSON; charset=utf-8"), Some(Format::Json));
        assert_eq!(Format::of_content_type("application/yaml"), Some(Format::Yaml));
        assert_eq!(Format::of_content_type("application/toml"), Some(Format::Toml));
        assert_eq!(Format::of_content_type("text/html"), None);
    }
}
