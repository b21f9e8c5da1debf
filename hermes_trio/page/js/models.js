// The models that can be asked for: the server's own first, then one for each profile.

import { get } from "./api.js";
import { Cell } from "./cell.js";

export const models = new Cell([]);

export async function loadModels() {
  models.set((await get("/v1/models")).data.map((model) => model.id));
}

export function defaultModel() {
  return models.value[0] ?? "";
}
