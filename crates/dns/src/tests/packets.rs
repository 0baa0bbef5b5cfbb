//! Packets, whole: what is echoed, what is cut, and what hostile ones get.
