import { type CSSVariablesResolver, createTheme, type MantineColorsTuple } from "@mantine/core";

// Buttons are ink, not a hue: colour belongs to groups and to what needs
// attention.
const ink: MantineColorsTuple = [
  "#e9ebef",
  "#d5d9e0",
  "#b2b9c4",
  "#8f98a5",
  "#717a87",
  "#565f6c",
  "#474f5c",
  "#2f353e",
  "#21262d",
  "#15181d",
];

export const theme = createTheme({
  primaryColor: "ink",
  primaryShade: { light: 9, dark: 0 },
  autoContrast: true,
  colors: { ink },
  fontFamily: "var(--sans)",
  fontFamilyMonospace: "var(--mono)",
  defaultRadius: 6,
  fontSizes: { xs: "12px", sm: "13px", md: "14px", lg: "16px", xl: "18px" },
  headings: { fontWeight: "600" },
  cursorType: "pointer",
  respectReducedMotion: true,
  components: {
    Button: { defaultProps: { size: "sm" } },
    Tooltip: { defaultProps: { withArrow: true, openDelay: 150 } },
    Modal: { defaultProps: { centered: true, size: 520, overlayProps: { backgroundOpacity: 0.4 } } },
  },
});

/** Mantine's own surfaces and lines take our tokens. */
export const variables: CSSVariablesResolver = () => {
  const tokens = {
    "--mantine-color-body": "var(--surface)",
    "--mantine-color-text": "var(--ink)",
    "--mantine-color-dimmed": "var(--ink-3)",
    "--mantine-color-placeholder": "var(--ink-3)",
    "--mantine-color-default": "var(--surface)",
    "--mantine-color-default-hover": "var(--hover)",
    "--mantine-color-default-color": "var(--ink)",
    "--mantine-color-default-border": "var(--line-strong)",
    "--mantine-color-error": "var(--bad)",
    "--mantine-color-anchor": "var(--accent)",
  };
  return { variables: {}, light: tokens, dark: tokens };
};
