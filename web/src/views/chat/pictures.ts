// Pictures for models that see: made small in the browser, and sent inside of the message.

export const MAX_PICTURES = 4;
export const PICTURE_TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const MAX_SIDE = 1280;
const QUALITY = 0.85;

/** A file as a data: URL of a JPEG that is no larger than models look at. Raises for what is no picture. */
export async function pictureOf(file: File): Promise<string> {
  const bitmap = await createImageBitmap(file);
  try {
    const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(bitmap.width * scale));
    canvas.height = Math.max(1, Math.round(bitmap.height * scale));
    const paper = canvas.getContext("2d")!;
    paper.fillStyle = "#fff"; // what is transparent would become black
    paper.fillRect(0, 0, canvas.width, canvas.height);
    paper.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/jpeg", QUALITY);
  } finally {
    bitmap.close();
  }
}

/** A blob of a data: URL: the page's CSP shows no data: URLs. */
export function blobOf(url: string): Blob {
  const [head = "", data = ""] = url.split(",", 2);
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return new Blob([bytes], { type: /^data:([^;]+)/.exec(head)?.[1] ?? "" });
}
