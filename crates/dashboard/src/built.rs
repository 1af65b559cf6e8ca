//! List of the built files, written by `npm run build` in `web/`.

use super::Asset;

/// Files of `assets/`.
pub(super) const ASSETS: &[Asset] = &[
    Asset {
        path: "/assets/index-BpXrvobG.js",
        content_type: "text/javascript",
        bytes: include_bytes!("../assets/index-BpXrvobG.js"),
        is_hashed: true,
    },
    Asset {
        path: "/assets/index-ChJR1b6e.css",
        content_type: "text/css",
        bytes: include_bytes!("../assets/index-ChJR1b6e.css"),
        is_hashed: true,
    },
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("../assets/index.html"),
        is_hashed: false,
    },
];
