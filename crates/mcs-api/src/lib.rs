//! The Multi-Cluster Services API (KEP-1645): ServiceExport, ServiceImport and their CRDs.
