import "./styles/fonts.css";
import "./styles/mantine.css";
import "./styles/tokens.css";
import "./styles/base.css";
import { MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClientProvider } from "@tanstack/react-query";
import { setNonce } from "get-nonce";
import { createRoot } from "react-dom/client";
import { makeQueryClient } from "./api/data";
import { App } from "./app";
import { theme, variables } from "./theme";

// The server puts a nonce into the page; style elements made at run time carry
// it, since the content security policy allows no others.
const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
setNonce(nonce);

createRoot(document.getElementById("root")!).render(
  <QueryClientProvider client={makeQueryClient()}>
    <MantineProvider
      theme={theme}
      cssVariablesResolver={variables}
      defaultColorScheme="auto"
      getStyleNonce={() => nonce}
    >
      <Notifications position="bottom-right" />
      <App />
    </MantineProvider>
  </QueryClientProvider>,
);
