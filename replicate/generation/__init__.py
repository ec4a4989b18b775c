"""Local generations: published, sealed, validated and resumed in one store directory."""
