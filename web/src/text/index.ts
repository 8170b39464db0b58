// The one place a language is chosen. A translation is another file of the
// same type.
import { en } from "./en";

export type Texts = typeof en;
export const t: Texts = en;
