import {
  type CSSVariablesResolver,
  createTheme,
  defaultVariantColorsResolver,
  type MantineColorsTuple,
  type VariantColorsResolver,
} from "@mantine/core";

// Buttons are ink, not a hue: colour belongs to groups and to what needs
// attention. All colours are our own tokens, which know the theme.
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

// What Mantine paints its own parts with in the dark theme.
const dark: MantineColorsTuple = [
  "#e9ebef",
  "#b2b9c4",
  "#8f98a5",
  "#717a87",
  "#3a424d",
  "#2a3038",
  "#1a1e24",
  "#15181d",
  "#101216",
  "#0b0d10",
];

const colorsOf: VariantColorsResolver = (input) => {
  const base = defaultVariantColorsResolver(input);
  if (input.variant === "filled") {
    const danger = input.color === "bad";
    return {
      ...base,
      background: danger ? "var(--bad)" : "var(--ink)",
      hover: danger ? "var(--bad)" : "var(--ink-2)",
      color: "var(--surface)",
      border: "1px solid transparent",
    };
  }
  if (input.variant === "subtle") {
    return { ...base, color: "var(--ink)", hover: "var(--hover)", hoverColor: "var(--ink)" };
  }
  return base;
};

const mark = { color: "var(--ink)", iconColor: "var(--surface)" };

export const theme = createTheme({
  primaryColor: "ink",
  primaryShade: { light: 9, dark: 0 },
  variantColorResolver: colorsOf,
  colors: { ink, dark },
  fontFamily: "var(--sans)",
  fontFamilyMonospace: "var(--mono)",
  defaultRadius: 6,
  fontSizes: { xs: "12px", sm: "13px", md: "14px", lg: "16px", xl: "18px" },
  headings: { fontWeight: "600" },
  cursorType: "pointer",
  respectReducedMotion: true,
  components: {
    Button: { defaultProps: { size: "sm" } },
    Tooltip: {
      defaultProps: { withArrow: true, openDelay: 150, color: "var(--ink)" },
      styles: { tooltip: { color: "var(--surface)" } },
    },
    Modal: {
      styles: { title: { fontWeight: 600, fontSize: 16 } },
      defaultProps: { centered: true, size: 520, overlayProps: { backgroundOpacity: 0.4 } },
    },
    Radio: { defaultProps: mark },
    Checkbox: { defaultProps: mark },
    Input: {
      vars: () => ({ wrapper: { "--input-bd": "var(--line-strong)", "--input-bd-focus": "var(--accent)" } }),
    },
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
    "--mantine-color-disabled": "var(--hover)",
    "--mantine-color-disabled-color": "var(--ink-3)",
    "--mantine-color-disabled-border": "var(--line)",
    "--mantine-color-error": "var(--bad)",
    "--mantine-color-anchor": "var(--accent)",
    "--mantine-primary-color-filled": "var(--ink)",
    "--mantine-primary-color-contrast": "var(--surface)",
  };
  return { variables: {}, light: tokens, dark: tokens };
};
