// The API key is stored only in the session storage of the tab.
const place = "team-monitor.key";

export const keptKey = (): string => sessionStorage.getItem(place) ?? "";
export const keepKey = (key: string): void => sessionStorage.setItem(place, key);
export const forgetKey = (): void => sessionStorage.removeItem(place);
