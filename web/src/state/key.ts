// The API key is kept for as long as the tab is open, and nowhere else.
const place = "team-monitor.key";

export const keptKey = (): string => sessionStorage.getItem(place) ?? "";
export const keepKey = (key: string): void => sessionStorage.setItem(place, key);
export const forgetKey = (): void => sessionStorage.removeItem(place);
