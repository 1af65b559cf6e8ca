//! List of the built files, written by `npm run build` in `web/`.

use super::Asset;

/// Files of `assets/`.
pub(super) const ASSETS: &[Asset] = &[
    Asset {
        path: "/assets/index-CBFkTYPc.css",
        content_type: "text/css",
        bytes: include_bytes!("../assets/index-CBFkTYPc.css"),
        is_hashed: true,
    },
    Asset {
        path: "/assets/index-CMaQnpeQ.js",
        content_type: "text/javascript",
        bytes: include_bytes!("../assets/index-CMaQnpeQ.js"),
        is_hashed: true,
    },
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("../assets/index.html"),
        is_hashed: false,
    },
];
