// Appended to a copy of a report: writes what can not be read into <html data-overlaps="...">.
// A text must not lie on another text, nor outside of its picture; nothing but tables and code,
// which scroll, may be wider than the page.
(() => {
	const wrong = [];
	for (const svg of document.querySelectorAll('svg')) {
		const frame = svg.getBoundingClientRect();
		const texts = [...svg.querySelectorAll('text')].map(
			(t) => ({ t, box: t.getBoundingClientRect() }));
		texts.forEach(({ t, box }, i) => {
			if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
			    box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
				wrong.push('outside: ' + t.textContent);
			for (const { t: other, box: o } of texts.slice(i + 1)) {
				const wide = Math.min(box.right, o.right) - Math.max(box.left, o.left);
				const high = Math.min(box.bottom, o.bottom) - Math.max(box.top, o.top);
				// Boxes are as high as the font, letters are not.
				if (wide > 0.5 && high > box.height * 0.3)
					wrong.push('overlap: ' + t.textContent + ' | ' + other.textContent);
			}
		});
	}
	for (const e of document.querySelectorAll('h1,h2,h3,p,figure,figcaption,li,svg'))
		if (e.getBoundingClientRect().right > document.body.getBoundingClientRect().right + 1)
			wrong.push('too wide: ' + e.textContent.slice(0, 60));
	const n = document.querySelectorAll('svg text').length;
	document.documentElement.setAttribute('data-overlaps',
		n ? (wrong.length ? wrong.join('; ') : 'none of ' + n) : 'no text at all');
})();
