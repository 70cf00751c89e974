module github.com/agentteams/team-server/tools/sbom

go 1.26.0

require github.com/CycloneDX/cyclonedx-go v0.10.0
