/** Nine slots, four owners. */
export function Logo({ size = 26 }: { size?: number }) {
  const colors = [
    "#4ea3dd",
    "#4ea3dd",
    "#e58a2b",
    "#2fb58c",
    "#f4f5f7",
    "#e58a2b",
    "#2fb58c",
    "#d48cbd",
    "#d48cbd",
  ];
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden>
      <rect width="32" height="32" rx="7" fill="#15181d" stroke="#474f5c" strokeWidth="0.5" />
      {colors.map((fill, i) => (
        <rect
          key={i}
          x={7 + (i % 3) * 6.5}
          y={7 + Math.floor(i / 3) * 6.5}
          width="5"
          height="5"
          fill={fill}
        />
      ))}
    </svg>
  );
}
